"""The declarations: ours are read, and whoever writes a wrong one is told the file, the field
and the remedy.
"""

import dataclasses

import pytest

from official_bert.extensions.experiments.declarations import (
    find_scale,
    list_experiments,
    read_catalogue,
    read_experiment,
)
from official_bert.fine_tuning.search import list_trials
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import ClassificationOptions
from tests.experiment_data import CATALOGUE

OURS = ["figure5", *(f"table{number}" for number in range(1, 9))]
GOOD = 'title = "T"\nsource = "S"\ncolumns = [{ task = "CoLA" }]\n[[rows]]\nlabel = "A"\nencoder = "base"\n'
TASK, ENCODER = '{ task = "CoLA" }', 'encoder = "base"'


def test_the_searches_of_all_recipes_are_searches_of_fine_tuning():
    searches = [
        recipe["search"]
        for scale in CATALOGUE.scales.values()
        for recipe in (*scale.recipes.values(), *scale.recipes_from_text.values())
        if "search" in recipe
    ]
    assert searches
    for search in searches:
        options = ClassificationOptions(task_name="CoLA", output_dir="out", search=search)
        assert [trial.learning_rate for trial in list_trials(options)] == [5e-5, 4e-5, 3e-5, 2e-5]


def test_a_scale_based_on_another_one_has_its_fields():
    desk, recipe = CATALOGUE.scales["desk"], CATALOGUE.scales["desk_recipe"]
    assert recipe.name == "desk_recipe"
    assert recipe.sizes == desk.sizes
    assert recipe.recipes == desk.recipes
    changed_flags = dict(recipe.pretraining[0].items() - desk.pretraining[0].items())
    assert changed_flags == {"lr_schedule": "wsd", "masked_lm_prob": 0.3}
    changed_fields = {
        field.name
        for field in dataclasses.fields(desk)
        if getattr(desk, field.name) != getattr(recipe, field.name)
    }
    assert changed_fields == {
        "name",
        "summary",
        "leaves_out",
        "records",
        "held_out",
        "pretraining",
    }


@pytest.mark.parametrize(
    ("scales", "sentence"),
    [
        ("[a]\nbased_on = 'b'\n[c]\n", "a: based_on: there is no scale 'b'; it is one of a, c"),
        (
            "[a]\nbased_on = 'b'\n[b]\nbased_on = 'c'\n[c]\n",
            "a: based_on: b is based on another scale; name that one",
        ),
        (
            "[a]\nsummary = ''\nseeds = 1\npretraining_seeds = 1\ntasks = []\n"
            "vocabulary = { vocab_size = 5 }\n[[a.pretraining]]\nstop_at_step = 3\n",
            "pretraining: its last phase has stop_at_step, so that no phase ends the schedule",
        ),
    ],
)
def test_faults_of_scales(tmp_path, scales, sentence):
    (tmp_path / "scales.toml").write_text(scales)
    (tmp_path / "tasks.toml").write_text("[tasks]\n[with_flag]\n")
    with pytest.raises(InputError) as error:
        read_catalogue(str(tmp_path))
    assert sentence in str(error.value)


def test_the_papers_tables_are_all_there():
    assert list_experiments(CATALOGUE.folder) == OURS
    assert list(CATALOGUE.scales) == ["smoke", "desk", "desk_recipe", "two_cores", "small", "paper"]
    assert [len(read_experiment(name, CATALOGUE).rows) for name in OURS] == [
        2,
        2,
        6,
        2,
        2,
        4,
        6,
        8,
        6,
    ]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('title = "T"\n', "", "title is missing; add it"),
        ('title = "T"', "title = 5", "title: must be a text, got 5"),
        ('title = "T"', "title = ", "is not TOML (Invalid value"),
        ('title = "T"', f"title = {'[' * 20000}", "is not TOML (maximum recursion depth exceeded"),
        ("encoder", "encodr", "rows, number 1: unknown field 'encodr'; did you mean encoder?"),
        (ENCODER, "", "rows, 'A': has neither or both of encoder and size"),
        (ENCODER, f"{ENCODER}\nrecords = {{ dupe_factor = 2 }}", "encoder names a given model"),
        (
            ENCODER,
            f'{ENCODER}\npaper = {{ "COLA" = 1.0 }}',
            "there is no column 'COLA'; did you mean CoLA?",
        ),
        (
            ENCODER,
            f'{ENCODER}\npaper = {{ "CoLA" = "1" }}',
            "paper: must be a table, each value a number",
        ),
        (
            ENCODER,
            f'{ENCODER}\nfirst_task = "CoLa"',
            "'CoLa' is no task of tasks.toml; did you mean CoLA?",
        ),
        (ENCODER, f"{ENCODER}\nensemble = 1", "rows, 'A': ensemble must be at least 2, got 1"),
        (
            ENCODER,
            f"{ENCODER}\nfine_tuning = {{ dtype = [[1]] }}",
            "each value a text, a number, true, false, or a",
        ),
        (TASK, f"{TASK}, {TASK}", "have the same label; give each its own"),
        (TASK, '{ task = "CoLA", set = "tets" }', "set is 'tets'; write dev or test"),
        (TASK, '{ task = "CoLA", at = 0.5 }', "column 'CoLA' needs one that is pre-trained"),
        (TASK, '{ task = "CoLA", at = nan }', "at is nan; write a share above 0 and at most 1"),
        (TASK, '{ measure = "perplexty" }', "no measure 'perplexty'; did you mean perplexity?"),
        (f"[{TASK}]", "[]", "columns: must be a list of tables, at least one"),
    ],
)
def test_a_wrong_experiment_ends_in_one_sentence(old, new, sentence, tmp_path):
    assert old in GOOD
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError) as raised:
        read_experiment(str(path), CATALOGUE)
    assert str(raised.value).startswith(f"{path}: ")
    assert sentence in str(raised.value)


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"table9: there is no such .*, one of figure5, table1, "):
        read_experiment("table9", CATALOGUE)
    with pytest.raises(InputError, match=r"mine\.toml: no such file"):
        read_experiment("mine.toml", CATALOGUE)
    with pytest.raises(
        InputError,
        match="no such scale; it is one of smoke, desk, desk_recipe, two_cores, small, paper",
    ):
        find_scale("huge", CATALOGUE)
