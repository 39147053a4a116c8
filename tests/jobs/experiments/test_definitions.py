"""The declarations: ours are sound, and whoever writes a wrong one is told the file, the field and the remedy."""

import shutil

import pytest

from official_bert.io.errors import InputError
from official_bert.jobs.experiments.definitions import names_of, read_catalogue, read_experiment
from tests.shared import ROOT

FOLDER = str(ROOT / "experiments")
OURS = ["figure5", *(f"table{number}" for number in range(1, 9))]
GOOD = 'title = "T"\nsource = "S"\ncolumns = [{ task = "CoLA" }]\n[[rows]]\nlabel = "A"\nencoder = "base"\n'


def test_the_papers_tables_are_all_there():
    assert names_of(FOLDER) == OURS
    catalogue = read_catalogue(FOLDER)
    assert list(catalogue.scales) == ["smoke", "tiny", "small", "paper"]
    for name in OURS:
        experiment = read_experiment(name, catalogue)
        assert experiment.source.startswith("Devlin et al. (2019), "), name
    assert [len(read_experiment(name, catalogue).rows) for name in OURS] == [2, 2, 6, 2, 2, 4, 6, 8, 6]


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    experiment = read_experiment(str(path), read_catalogue(FOLDER))
    assert (experiment.name, experiment.title, experiment.is_ablation) == ("mine", "T", False)
    assert [(column.label, column.set) for column in experiment.columns] == [("CoLA", "dev")]
    assert [(row.label, row.encoder, row.size) for row in experiment.rows] == [("A", "base", None)]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('title = "T"\n', "", "title is missing; add it"),
        ('title = "T"', "title = 5", "title: must be a text, got 5"),
        ('title = "T"', 'title = "T"\ntitel = "T"', "unknown field 'titel'; did you mean 'title'?"),
        ("encoder", "encodr", "rows, number 1: unknown field 'encodr'; did you mean 'encoder'?"),
        ('encoder = "base"', "", "rows, 'A': has neither or both of encoder and size"),
        (
            'encoder = "base"',
            'encoder = "base"\nrecords = { dupe_factor = 2 }',
            "encoder names a given model",
        ),
        ('encoder = "base"', 'encoder = "base"\npaper = { "MNLI" = 1.0 }', "there is no column 'MNLI'"),
        (
            'encoder = "base"',
            'encoder = "base"\npaper = { "CoLA" = "1" }',
            "paper: must be a table, each value a number",
        ),
        (
            'encoder = "base"',
            'encoder = "base"\nfirst_task = "CoLa"',
            "'CoLa' is no task of tasks.toml; did you mean",
        ),
        ('"CoLA"', '"COLA2"', "columns, 'COLA2', task: 'COLA2' is no task of tasks.toml"),
        ('{ task = "CoLA" }', '{ task = "CoLA" }, { task = "CoLA" }', "columns: two have the same label"),
        (
            '{ task = "CoLA" }',
            '{ label = "x" }',
            "columns, number 1: has neither or both of task and measure",
        ),
        ('{ task = "CoLA" }', '{ task = "CoLA", set = "tets" }', "set is 'tets'; write dev or test"),
        ('{ task = "CoLA" }', '{ task = "CoLA", at = 0.5 }', "column 'CoLA' needs one that is pre-trained"),
        ('{ task = "CoLA" }', '{ task = "CoLA", at = 0.0 }', "at is 0; write a share above 0 and at most 1"),
        (
            '{ task = "CoLA" }',
            '{ task = "CoLA", at = nan }',
            "at is nan; write a share above 0 and at most 1",
        ),
        (
            '{ task = "CoLA" }',
            '{ measure = "perplexty" }',
            "there is no measure 'perplexty'; did you mean 'perp",
        ),
        ('encoder = "base"', 'encoder = ""', "rows, 'A': has an empty text"),
        (
            'encoder = "base"',
            'encoder = "base"\nensemble = 1',
            "rows, 'A': ensemble must be at least 2, got 1",
        ),
        (
            '[{ task = "CoLA" }]\n[[rows]]',
            '[{ task = "CoLA", set = "test" }]\n[[rows]]\nensemble = 2',
            "an ensemble is evaluated on the development set, and column 'CoLA' is of the test set",
        ),
        (
            'encoder = "base"',
            'encoder = "base"\nfine_tuning = { dtype = [[1]] }',
            "rows, number 1: fine_tuning: must be a table, each value a text, a finite number, true, false, or a list",
        ),
        ('[{ task = "CoLA" }]', "[]", "columns: must be a list of tables, at least one"),
        ("[[rows]]", "[rows]", "rows: must be a list of tables, at least one"),
        ('title = "T"', "title = ", "is no TOML (Invalid value"),
    ],
)
def test_a_wrong_experiment_ends_in_one_sentence(old, new, sentence, tmp_path):
    assert old in GOOD
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError) as raised:
        read_experiment(str(path), read_catalogue(FOLDER))
    assert str(raised.value).startswith(f"{path}: ")
    assert sentence in str(raised.value)


def test_unknown_names_are_answered_with_the_known_ones():
    catalogue = read_catalogue(FOLDER)
    with pytest.raises(
        InputError, match=r"table9: there is no such experiment in .*; choose one of figure5, table1"
    ):
        read_experiment("table9", catalogue)
    with pytest.raises(InputError, match="no such scale; choose one of smoke, tiny, small, paper"):
        catalogue.scale("huge")
    with pytest.raises(InputError, match=r"mine\.toml: no such file"):
        read_experiment("mine.toml", catalogue)


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("scales.toml", "seeds = 1\n", "seeds = 0\n", "smoke.seeds: must be at least 1, got 0"),
        ("scales.toml", "seeds = 1\n", "sedes = 1\n", "smoke: unknown field 'sedes'; did you mean 'seeds'?"),
        ("scales.toml", "vocab_size = 400", "size = 400", "smoke.vocabulary: has no vocab_size"),
        (
            "scales.toml",
            '[tiny.recipes_from_text]\n"WNUT-17"',
            '[tiny.recipes_from_text]\n"WNUT-71"',
            "tiny.recipes_from_text: 'WNUT-71' is no task of tasks.toml; did you mean 'WNUT-17'?",
        ),
        ("scales.toml", '"MRPC" = ["CoLA"]', '"MRPC" = ["Cola2"]', "smoke.stand_ins: 'Cola2' is no task"),
        (
            "scales.toml",
            '"MRPC" = ["CoLA"]',
            '"MRPC" = [1]',
            "smoke: stand_ins: must be a table, each value a list",
        ),
        ("scales.toml", "vocab_size = 400", "vocab_size = true", "smoke.vocabulary: has no vocab_size"),
        (
            "scales.toml",
            "vocab_size = 400",
            "vocab_size = 400, vocab_file = 5",
            "smoke.vocabulary: vocab_file must be a text",
        ),
        (
            "scales.toml",
            "[[tiny.pretraining]]\nrecords = { max_seq_length = 16, max_predictions_per_seq = 3 }",
            "[[tiny.pretraining]]\nrecords = 5",
            "tiny.pretraining, number 1: records: must be a table",
        ),
        (
            "tasks.toml",
            "examples = [392702, 19647]",
            "examples = [-1, 19647]",
            "MNLI.examples: must be two numbers from 0",
        ),
        ("tasks.toml", "sequences = 4", "sequences = 0", "SWAG.sequences: must be at least 1, got 0"),
        (
            "tasks.toml",
            "examples = [392702, 19647]",
            "examples = [392702]",
            "MNLI.examples: must be two numbers",
        ),
        (
            "tasks.toml",
            "[with_flag]\n",
            "[with_flag]\nx = 1\n",
            "with_flag: must be a table, each value a table",
        ),
        ("tasks.toml", "percent = true", "percent = 1", "SQuAD 1.1: percent: must be true or false, got 1"),
        (
            "tasks.toml",
            "[with_flag]",
            "[with_flags]",
            "unknown field 'with_flags'; did you mean 'with_flag'?",
        ),
    ],
)
def test_a_wrong_scale_or_task_ends_in_one_sentence(file, old, new, sentence, tmp_path):
    for name in ("scales.toml", "tasks.toml"):
        shutil.copy(ROOT / "experiments" / name, tmp_path)
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as raised:
        read_catalogue(str(tmp_path))
    assert str(raised.value).startswith(str(tmp_path / file))
    assert sentence in str(raised.value)
