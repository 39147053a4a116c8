"""The expansion of declarations into commands: by value, for every table at every scale, and
what is shared.
"""

import collections
import dataclasses

import pytest

from official_bert.config import BertConfig
from official_bert.extensions.experiments import columns, steps
from official_bert.extensions.experiments.declarations import list_experiments, read_experiment
from official_bert.extensions.experiments.plan import Plan
from official_bert.extensions.experiments.steps import Layout, Place, Step
from official_bert.io.errors import InputError
from tests.experiment_data import CATALOGUE, TWO_ROWS, plan_of
from tests.shared import ROOT


@pytest.fixture
def two_rows(tmp_path):
    """A function that plans the experiment of two rows at the scale smoke with a change of its
    text.
    """

    def plan(old: str = "", new: str = "", **settings) -> Plan:
        path = tmp_path / "two.toml"
        assert old in TWO_ROWS
        path.write_text(TWO_ROWS.replace(old, new))
        return plan_of(str(path), "smoke", **settings)

    return plan


MODELS = {"base": "bert", "large": "bert_large"}
DESK = CATALOGUE.scales["desk"]


def list_commands(plan: Plan) -> list[str]:
    """Return the commands with K for the identity of each step, which is another for each change
    of a flag.
    """
    layout = Layout("out", "data", MODELS)
    keys = [layout.key(step) for step in plan.steps]
    lines = []
    for step in plan.steps:
        line = layout.shell_line(step)
        for key in keys:
            line = line.replace(key, "K")
        lines.append(line)
    return lines


def list_steps(plan: Plan, kind: str) -> list[Step]:
    return [step for step in plan.steps if step.kind == kind]


def test_the_commands_of_a_pretraining_by_value(two_rows, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = two_rows(training_flags={"dtype": "bfloat16"})
    cells = [cell for cell in plan.cells if cell.row == "No NSP"]
    plan = dataclasses.replace(plan, cells=cells)
    vocab = "out/vocabulary-400-K/output/vocab.txt"
    lengths = "--max_seq_length=32 --max_predictions_per_seq=5"
    name = "2-16-2-use-next-sentence-false-seed-1-K"
    model = f"out/pretraining-{name}"
    assert list_commands(plan)[2:] == [
        "official-bert create_pretraining_data '--input_file=data/corpus/train*.txt' "
        f"--output_file=out/records-train-K/output/train --vocab_file={vocab} {lengths} "
        "--dupe_factor=2 --generator=sharded",
        "official-bert run_pretraining --do_train=true "
        "'--input_file=out/records-train-K/output/train-?????-of-?????' "
        f"--bert_config_file={model}/bert_config.json --vocab_file={vocab} "
        f"--output_dir={model}/output {lengths} --train_batch_size=8 --num_train_steps=10 "
        "--num_warmup_steps=2 --learning_rate=0.001 --save_checkpoints_steps=2 "
        "--keep_checkpoint_max=0 --use_next_sentence=false --random_seed=1 --dtype=bfloat16",
        "official-bert run_pretraining --do_eval=true "
        f"--input_file=out/records-held-out-K/output/held_out.tfrecord --model={model}/output "
        f"--output_dir=out/evaluation-{name}/output --eval_batch_size=32 "
        f"--max_eval_steps=0 {lengths} --use_next_sentence=false --dtype=bfloat16",
        f"official-bert run_classifier --model={model}/output "
        f"--output_dir=out/fine-tuning-sts-b-{name}/output --do_train=true "
        "--do_eval=true --data_dir=data/STS-B --task_name=STS-B --num_train_epochs=1.0 "
        "--train_batch_size=8 --eval_batch_size=32 --shuffle_buffer_size=0 --max_seq_length=32 "
        "--dtype=bfloat16 --random_seed=1",
    ]
    (pretraining,) = list_steps(plan, "pretraining")
    config = dict(pretraining.config)
    assert config["hidden_size"] == 16
    assert config["intermediate_size"] == 64
    assert config["max_position_embeddings"] == 128


def test_minimal_pairs_are_scored_by_the_pretrained_model(two_rows, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = two_rows('measure = "perplexity"', 'measure = "minimal_pairs"')
    lines = [line for line in list_commands(plan) if "minimal_pairs" in line]
    assert lines[-1] == (
        "official-bert evaluate_minimal_pairs --model=out/pretraining-2-16-2-use-next-sentence-false-seed-1-K/output "
        "--input_file=data/BLiMP.zip "
        "--output_file=out/minimal-pairs-2-16-2-use-next-sentence-false-seed-1-K/output/minimal_pairs.tsv "
        "--num_records=2"
    )


def test_a_scale_leaves_rows_and_columns_out(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(TWO_ROWS)
    smoke = CATALOGUE.scales["smoke"]
    scale = dataclasses.replace(smoke, leaves_out=["No NSP", "STS-B"])
    plan = plan_of(str(path), scale)
    (row,) = plan.rows
    (column,) = plan.columns
    assert row.label == "BERT"
    assert column.label == "Perplexity"
    assert plan.left_out == [
        "column 'STS-B': --scale=smoke does not measure it",
        "row 'No NSP': --scale=smoke does not run it",
    ]


def test_an_ensemble_after_triviaqa(monkeypatch):
    monkeypatch.chdir(ROOT)
    experiment = read_experiment("table2", CATALOGUE)
    row = dataclasses.replace(experiment.rows[-1], ensemble=2)
    experiment = dataclasses.replace(experiment, rows=[row])
    plan = plan_of(experiment, "paper")
    first, second, *_, ensemble = list_commands(plan)

    trained = "out/fine-tuning-triviaqa-large-seed-1-K/output"
    assert f" --model=bert_large --output_dir={trained} --do_train=true " in first
    assert " --do_train=true --train_file=data/TriviaQA/train.json " in first
    assert "do_predict" not in first

    scope = "out/fine-tuning-squad-1.1-large-after-triviaqa-seed"
    first_member = f"{scope}-1-K/output"
    second_member = f"{scope}-2-K/output"
    assert f" --model={trained} --output_dir={first_member} --do_train=true " in second
    assert " --do_train=true --do_predict=true " in second

    assert "do_train" not in ensemble
    assert ensemble.endswith(f" --ensemble_dirs={first_member},{second_member}")


def test_the_members_of_an_ensemble_take_turns_with_numbered_models():
    experiment = read_experiment("table2", CATALOGUE)
    single, ensemble = experiment.rows[2:4]
    assert (single.label, ensemble.label) == ("BERT-Large, single", "BERT-Large, ensemble")
    experiment = dataclasses.replace(experiment, rows=[single, ensemble])
    names = ["base", "large3", "large", "large2", "large_cased"]
    plan = plan_of(experiment, "small", encoders=names, num_seeds=2)
    tuned = list_steps(plan, "fine-tuning")
    starts = [(step.flag("model").root, step.flag("random_seed")) for step in tuned]
    # Two seeds of the single model, and the five members of the ensemble; the first is shared.
    members = [("large", 1), ("large2", 2), ("large3", 3), ("large", 4), ("large2", 5)]
    assert sorted(starts) == sorted([*members, ("large", 2)])
    (step,) = list_steps(plan, "ensemble")
    roots = [place.root for place in step.flag("ensemble_dirs")]
    assert [(root.flag("model").root, root.seed) for root in roots] == members


FEATURE_FLAGS = {
    "task_name": "feature_based",
    "feature_layers": "sum_all",
    "learning_rate": 1e-3,
    "num_train_epochs": 10.0,
    "train_batch_size": 32,
}


def test_feature_based_rows_and_columns_have_a_recipe_of_their_own():
    plan = plan_of("table7", encoders=["base"], num_seeds=1)
    *_, last = list_steps(plan, "fine-tuning")
    assert {name: last.flag(name) for name in FEATURE_FLAGS} == FEATURE_FLAGS
    plan = plan_of("table8")
    tuned = [step for step in list_steps(plan, "fine-tuning") if step.flag("feature_layers")]
    flags = FEATURE_FLAGS | {"feature_layers": "concat_last_four", "train_batch_size": 16}
    assert len(tuned) == 4 * 2
    for step in tuned:
        assert {name: step.flag(name) for name in flags} == flags


def test_without_the_extension_its_rows_and_columns_are_left_out(monkeypatch):
    known = steps.flag_fields

    def without_features(options_class):
        return [each for each in known(options_class) if each.name != "feature_layers"]

    for module in (columns, steps):
        monkeypatch.setattr(module, "flag_fields", without_features)
    reason = "run_ner has no --feature_layers, because its extension is not installed"
    plan = plan_of("table7")
    labels = [row.label for row in plan.rows]
    assert labels == ["Fine-tuned, BERT-Large", "Fine-tuned, BERT-Base"]
    assert f"row 'Feature-based, embeddings': {reason}" in plan.left_out
    plan = plan_of("table8")
    assert [column.label for column in plan.columns] == ["BLiMP", "MNLI", "NER, fine-tuned"]
    assert f"column 'NER, feature-based': {reason}" in plan.left_out


def test_the_test_set_is_evaluated_with_the_fine_tuned_model(monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = plan_of("table7", encoders=["base"], num_seeds=1)
    assert plan.left_out == [
        "row 'Fine-tuned, BERT-Large': its model is not given; add --model=large=FOLDER"
    ]
    tuned = "out/fine-tuning-wnut-17-base-seed-1-K/output"
    assert list_commands(plan)[1] == (
        f"official-bert run_ner --model={tuned} --output_dir=out/test-wnut-17-base-seed-1-K/output "
        "--do_eval=true --data_dir=data/WNUT-17 --num_train_epochs=3.0 --learning_rate=0.00015 "
        "--train_batch_size=32 --eval_batch_size=32 --optimizer_type=adamw_bias_correction "
        "--max_seq_length=64 --dev_file=data/WNUT-17/test.conll"
    )


def test_a_scale_has_flags_for_rows_with_a_flag_which_follow_those_of_all_scales():
    """Those of a row without the flag stay as they are."""

    def find_commands(scale: str) -> list[str]:
        plan = plan_of("table7", scale)
        return [command for command in list_commands(plan) if "--do_train" in command]

    commands = find_commands("desk")
    based = [command for command in commands if "--feature_layers=" in command]
    assert len(based) == 6 * 2
    assert all(" --num_train_epochs=10.0 " in command for command in based)
    assert [command for command in commands if "--bilstm_size=256" in command] == based
    assert not any("--bilstm_size" in command for command in find_commands("paper"))


@pytest.mark.parametrize("scale", CATALOGUE.scales)
@pytest.mark.parametrize("name", list_experiments(CATALOGUE.folder))
def test_every_table_expands_at_every_scale_with_flags_that_the_scripts_have(name, scale):
    plan = plan_of(name, scale)
    assert plan.cells
    for step in plan.steps:
        if step.config:
            BertConfig.from_dict(dict(step.config)).validate()
    names = collections.Counter(step.name for step in plan.steps)
    assert set(names.values()) == {1}, "two steps that differ have names that do not"


def test_rows_share_what_is_equal():
    """Table 5 has three models for four rows; in table 3 two columns are SQuAD, with one run for
    both.
    """

    def count_steps(name: str, scale: str = "desk") -> dict[str, int]:
        plan = plan_of(name, scale)
        return collections.Counter(step.kind for step in plan.steps)

    steps = count_steps("table5", "paper")
    # Of two phases.
    assert steps["records"] == 2
    assert steps["pretraining"] == 3 * 2
    assert steps["fine-tuning"] == 4 * 5 * 5
    steps = count_steps("table8", "paper")
    assert steps["records"] == 6 * 2  # for each mix

    # Rows, columns, seeds.
    assert count_steps("table5") == {
        "vocabulary": 1,
        "records": 1,
        "pretraining": 3 * 2,
        "minimal pairs": 3 * 2,
        "fine-tuning": 3 * 2 * 2,
    }
    assert count_steps("table6") == {
        "vocabulary": 1,
        "records": 1 + 1,
        "pretraining": 4 * 2,
        "evaluation": 4 * 2,
        "minimal pairs": 4 * 2,
        "fine-tuning": 4 * 3 * 2,
    }
    # Whose trainings draw the masks.
    assert count_steps("table8") == {
        "vocabulary": 1,
        "records": 1,
        "pretraining": 4 * 2,
        "minimal pairs": 4 * 2,
        "fine-tuning": 4 * 3 * 2,
    }


def test_experiments_share_what_is_equal():
    """BERT-Base of tables 6 and 8; at the scale desk it is the second row of table 5, without
    next sentences.
    """
    layout = Layout("out", "data", {"base": "bert"})

    def find_models(name: str, scale: str = "desk") -> set[str]:
        """Return the folders of the pre-trained models of a table."""
        plan = plan_of(name, scale)
        return {layout.folder(step) for step in list_steps(plan, "pretraining")}

    shared = find_models("table5") & find_models("table6") & find_models("table8")
    assert len(shared) == 2  # two seeds

    shared = find_models("table5", "paper")
    shared &= find_models("table6", "paper")
    shared &= find_models("table8", "paper")
    assert len(shared) == 2  # two phases

    assert find_models("figure5") < find_models("table5")  # masked LM and left to right
    first, second, *_ = list_steps(plan_of("table5"), "pretraining")
    assert first.label == "4/256/4 use_next_sentence=True seed 1"
    assert second.label == "4/256/4 use_next_sentence=True seed 2"


def find_mask_rates(steps: list[Step]) -> set[str | None]:
    return {step.flag("mask_rates") for step in steps}


@pytest.mark.parametrize(
    ("scale", "kind", "other"),
    [
        pytest.param("desk", "pretraining", "records", id="trainings draw masks"),
        pytest.param("small", "records", "pretraining", id="records have masks"),
    ],
)
def test_masks_are_a_training_s_where_it_draws_them(scale, kind, other):
    plan = plan_of("table8", scale)
    steps = [step for step in list_steps(plan, kind) if "mask_rates" in step.label]
    assert find_mask_rates(steps) >= {"1.0,0.0", "0.8,0.2", "0.0,1.0"}
    assert find_mask_rates(list_steps(plan, other)) == {None}


def test_other_flags_of_records_stay_where_a_training_draws_masks(two_rows):
    records = 'records = { dupe_factor = 7, mask_rates = "0.8,0.1" }'
    experiment = two_rows("pretraining = {", f"{records}\npretraining = {{").experiment
    steps = plan_of(experiment, "desk", num_seeds=1).steps
    assert {step.flag("dupe_factor") for step in steps} >= {2, 7}
    assert find_mask_rates(steps) == {None}, "it is the default"


def test_a_row_may_draw_masks_by_rates_of_its_own(two_rows):
    flags = 'records = { mask_rates = "1.0,0.0" }\npretraining = { dynamic_masking = true, '
    experiment = two_rows("pretraining = {", flags).experiment
    plan = plan_of(experiment, "small")
    assert "1.0,0.0" in find_mask_rates(list_steps(plan, "pretraining"))


def test_a_row_s_flags_count_where_they_change_a_phase(two_rows):
    """Those that do not make no other model, and flags of the experiment's own are refused in
    any case.
    """

    def list_phases(flags: str) -> list[Step]:
        plan = two_rows(
            "pretraining = { use_next_sentence = false }",
            f"pretraining = {{ {flags} }}",
        )
        plan = plan_of(plan.experiment, "paper", num_seeds=1)
        return list_steps(plan, "pretraining")

    # Phases of one model.
    phases = list_phases("use_next_sentence = true, adam_beta1 = 0.9")
    assert len(phases) == 2

    phases = list_phases("stop_at_step = 900000")  # It is that of the first phase already.
    limits = [step.flag("stop_at_step") for step in phases]
    assert limits == [900_000, None, 900_000, 900_000]
    assert phases[2].label == "12/768/12 stop_at_step=900000 seed 1 phase 1"

    with pytest.raises(InputError, match="sets --do_train itself"):
        list_phases("do_train = false")

    evaluations = list_steps(plan_of("table6"), "evaluation")
    (evaluation,) = [step for step in evaluations if step.label == "4/256/4 seed 1"]
    assert evaluation.flag("use_next_sentence") is False


def test_a_figure_starts_from_the_checkpoints_of_one_training():
    plan = plan_with_all_checkpoints()
    starts = [step.flag("model") for step in list_steps(plan, "fine-tuning")]
    paths = [
        "model.ckpt-200000",
        "model.ckpt-400000",
        "model.ckpt-600000",
        "model.ckpt-800000",
        "",  # the end of the second phase
    ]
    assert [start.path for start in starts] == paths * 2
    for model in (starts[:5], starts[5:]):
        first, *others, last = (start.root for start in model)
        assert others == [first] * 3
        assert last.continued == Place(first, "model.ckpt-900000")

    # Minimal pairs start from the same checkpoints, and have a name for each.
    scored = list_steps(plan, "minimal pairs")
    assert [step.flag("model") for step in scored] == starts
    assert len({step.name for step in scored}) == len(starts)


def plan_with_all_checkpoints() -> Plan:
    """Plan the figure at the scale of the paper with trainings that keep all checkpoints."""
    paper = CATALOGUE.scales["paper"]
    phases = [phase | {"keep_checkpoint_max": 0} for phase in paper.pretraining]
    scale = dataclasses.replace(paper, pretraining=phases)
    return plan_of("figure5", scale, num_seeds=1)


def test_a_figure_starts_from_the_end_of_a_phase_or_within_it():
    plan = plan_with_all_checkpoints()
    first_phase, second_phase, *_ = list_steps(plan, "pretraining")

    def find_start(at: float) -> Place:
        """Return where a fine-tuning starts that is at this share of the training."""
        column = dataclasses.replace(plan.experiment.columns[0], at=at)
        experiment = dataclasses.replace(plan.experiment, columns=[column])
        other_plan = plan_of(experiment, plan.scale, num_seeds=1)
        tuned = list_steps(other_plan, "fine-tuning")
        return tuned[0].flag("model")

    end = find_start(0.9)
    assert end.path == ""  # a phase ends with its newest checkpoint
    assert end.root == first_phase
    within = find_start(0.94)
    assert within.path == "model.ckpt-940000"
    assert within.root == second_phase


def test_phases_with_schedules_of_their_own():
    """The second one starts from the weights of the first, and counts its updates from 1."""
    paper = CATALOGUE.scales["paper"]
    flags = {"save_checkpoints_steps": 100, "keep_checkpoint_max": 0}
    first_phase = flags | {"num_train_steps": 9000}
    second_phase = flags | {"num_train_steps": 3000}
    scale = dataclasses.replace(paper, pretraining=[first_phase, second_phase])
    plan = plan_of("figure5", scale, num_seeds=1)
    column = dataclasses.replace(plan.experiment.columns[0], at=5 / 6)
    experiment = dataclasses.replace(plan.experiment, columns=[column])

    plan = plan_of(experiment, scale, num_seeds=1)
    first, second, *_ = list_steps(plan, "pretraining")
    assert second.continued is None
    assert second.flag("init_checkpoint") == Place(first)
    start = list_steps(plan, "fine-tuning")[0].flag("model")
    assert start == Place(second, "model.ckpt-1000")


def test_a_phase_resumes_the_one_before_it():
    plan = plan_of("table6", "paper", num_seeds=1)
    first, second, *_ = list_steps(plan, "pretraining")
    assert first.flag("stop_at_step") == 900_000
    assert second.continued == Place(first, "model.ckpt-900000")
    for flag in ("num_train_steps", "num_warmup_steps", "learning_rate"):
        assert first.flag(flag) == second.flag(flag)
    assert second.flag("init_checkpoint") is None
    assert first in second.inputs()

    layout = Layout("out", "data", MODELS)
    first_output = f"out/pretraining-3-768-12-seed-1-phase-1-{layout.key(first)}/output"
    assert layout.copied_files(second) == [
        f"{first_output}/model.ckpt-900000.data-*",
        f"{first_output}/model.ckpt-900000.index",
        f"{first_output}/input.ckpt-900000-*",
        f"{first_output}/checkpoint",
    ]
    assert layout.copied_files(first) == []
    alone = dataclasses.replace(second, continued=None)
    assert layout.key(alone) != layout.key(second)


def test_a_checkpoint_that_is_not_kept_is_refused():
    experiment = read_experiment("figure5", CATALOGUE)
    odd_column = dataclasses.replace(experiment.columns[0], at=0.25)
    odd_experiment = dataclasses.replace(experiment, columns=[odd_column])
    message = r"needs the checkpoint of update 1250 of phase 1; set keep_checkp"
    with pytest.raises(InputError, match=message):
        plan_of(odd_experiment)

    # Of which the last five are kept.
    phase = {"num_train_steps": 5000, "save_checkpoints_steps": 1000}
    scale = dataclasses.replace(DESK, pretraining=[phase])
    with pytest.raises(InputError, match=r"update 1000 of phase 1; .* in desk.pretraining"):
        plan_of(experiment, scale)


def test_seeds_of_fine_tunings_go_round_the_pretrainings():
    scale = dataclasses.replace(DESK, seeds=4, pretraining_seeds=2)
    plan = plan_of("table6", scale)
    pretraining_seeds = {}
    for step in list_steps(plan, "fine-tuning"):
        if step.label.startswith("SST-2 2/128/2"):
            pretraining = step.flag("model").root
            pretraining_seeds[step.seed] = pretraining.seed
    assert pretraining_seeds == {1: 1, 2: 2, 3: 1, 4: 2}
    measures = [cell for cell in plan.cells if cell.column.task is None]
    assert {cell.seed for cell in measures} == {1, 2}


def test_the_more_special_flags_of_a_fine_tuning_win(two_rows):
    """The task's recipe, then models from text, then the task's recipe for them, then the row."""
    recipes = {
        **DESK.recipes,
        "WNUT-17": {"learning_rate": 1e-4, "train_batch_size": 8},
        "STS-B": {"num_train_epochs": 1.5},
    }
    scale = dataclasses.replace(DESK, recipes=recipes)

    def find_flags(name: str, task: str) -> tuple:
        """Return the learning rate, the epochs and the batch size of a task in a table."""
        plan = plan_of(name, scale, encoders=["base"])
        *_, step = [
            step
            for step in list_steps(plan, "fine-tuning")
            if step.label.startswith(f"{task} ") and not step.flag("feature_layers")
        ]
        return (
            step.flag("learning_rate"),
            step.flag("num_train_epochs"),
            step.flag("train_batch_size"),
        )

    assert find_flags("table7", "WNUT-17") == (1e-4, 3.0, 8)
    assert find_flags("table8", "STS-B") == (2e-4, 1.5, 32)
    assert find_flags("table8", "WNUT-17") == (5e-4, 5.0, 16)

    row_flags = "fine_tuning = { num_train_epochs = 9.0 }"
    plan = two_rows('label = "BERT"', f'label = "BERT"\n{row_flags}')
    steps = list_steps(plan, "fine-tuning")
    assert {step.flag("num_train_epochs") for step in steps} == {9.0, 1.0}


def test_what_is_left_out_has_its_reason(two_rows):
    columns = '{ task = "CoLA", set = "test", label = "test" }, { task = "RTE" }, { task = "CoLA" }, { task = "MRPC" }'
    plan = two_rows('{ task = "STS-B" }]', f'{columns}, {{ task = "STS-B" }}]')
    assert plan.left_out == [
        "column 'test': CoLA has no test set with labels",
        "column 'RTE': --scale=smoke has neither its task nor one that stands in for it",
        "column 'MRPC': what may stand in for its task (CoLA) is that of another column",
    ]
    row = dataclasses.replace(plan.experiment.rows[0], first_task="SWAG")
    absent_task = dataclasses.replace(plan.experiment, rows=[row])
    message = r"nothing is left .*row 'BERT': --scale=smoke has no task 'SWAG'"
    with pytest.raises(InputError, match=message):
        plan_of(absent_task, "smoke")
    message = r"table1.toml: nothing is left .*add --model=base=FOLDER; row"
    with pytest.raises(InputError, match=message):
        plan_of("table1", encoders=[])


def test_a_stand_in_keeps_its_own_metric_and_only_fractions_become_percentages():
    columns = plan_of("table5", "paper").columns
    assert [(column.metric, column.factor) for column in columns] == [
        ("minimal_pairs", 1.0),  # it is read as percentages
        ("eval_accuracy", 100.0),
        ("eval_accuracy", 100.0),
        ("eval_accuracy", 100.0),  # MRPC's own metric is F1
        ("eval_accuracy", 100.0),
        ("f1", 1.0),  # SQuAD's is in percent
    ]
    columns = plan_of("table5").columns
    assert [column.metric for column in columns] == [
        "minimal_pairs",
        "eval_spearman",
        "eval_accuracy",
    ]


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (
            "pretraining = { lerning_rate = 1.0 }",
            "has no lerning_rate; did you mean learning_rate?",
        ),
        (
            "pretraining = { output_dir = 'here' }",
            "the experiment sets --output_dir itself; remove it",
        ),
        (
            "pretraining = { num_warmup_steps = 2.5 }",
            "--num_warmup_steps: must be a whole number, got 2.5",
        ),
        (
            "pretraining = { num_train_steps = 0 }",
            "--num_train_steps: must be positive and at most",
        ),
        (
            "pretraining = { learning_rate = [1e-3, 2.0] }",
            "takes one value, and no list, got 0.001,2.0",
        ),
        (
            "pretraining = { dtype = 'float8' }",
            "run_pretraining, --dtype: must be one of float32, ",
        ),
        (
            "config = { hiden_size = 4 }",
            "bert_config.json has no hiden_size; did you mean hidden_size?",
        ),
        (
            'first_task = "CoLA"\nfine_tuning = { search = "paper" }',
            "is a search, which leaves several models",
        ),
    ],
)
def test_flags_that_no_script_would_take_are_refused(two_rows, field, sentence):
    with pytest.raises(InputError) as raised:
        two_rows("pretraining = { use_next_sentence = false }", field)
    assert sentence in str(raised.value)
