"""The expansion of declarations into commands: by value, for every table at every scale, and what is shared."""

import collections
import dataclasses

import pytest

from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.jobs.experiments.definitions import names_of, read_catalogue, read_experiment
from official_bert.jobs.experiments.plan import Plan, Settings, config_of, make_plan
from official_bert.jobs.experiments.steps import Layout, Output, Step
from tests.experiment_data import TWO_ROWS
from tests.shared import ROOT

FOLDER = str(ROOT / "experiments")
CATALOGUE = read_catalogue(FOLDER)
ENCODERS = {"base": {"num_hidden_layers": 12}, "large": {"num_hidden_layers": 24}}


def plan_of(name: str, scale: str = "tiny", **settings) -> Plan:
    settings.setdefault("encoders", ENCODERS)
    return make_plan(
        read_experiment(name, CATALOGUE), CATALOGUE.scale(scale), CATALOGUE, Settings(**settings)
    )


def commands(plan: Plan) -> list[str]:
    """The commands with K for the identity of each step, which is another for each change of a flag."""
    layout = Layout("out", "data", {"base": "bert", "large": "bert_large"}, ".")
    lines = []
    for step in plan.steps:
        line = layout.shell_line(step)
        for each in plan.steps:
            line = line.replace(layout.key(each), "K")
        lines.append(line)
    return lines


def count_of(plan: Plan) -> dict[str, int]:
    return dict(collections.Counter(step.kind for step in plan.steps))


def test_the_commands_of_a_pretraining_by_value(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = tmp_path / "two.toml"
    path.write_text(TWO_ROWS)
    one_row = dataclasses.replace(
        read_experiment(str(path), CATALOGUE), rows=read_experiment(str(path), CATALOGUE).rows[1:]
    )
    plan = make_plan(
        one_row, CATALOGUE.scale("smoke"), CATALOGUE, Settings(training_flags={"dtype": "bfloat16"})
    )
    vocab, lengths = (
        "out/vocabulary-400-K/output/vocab.txt",
        "--max_seq_length=32 --max_predictions_per_seq=5",
    )
    model = "out/pretraining-2-16-2-use-next-sentence-loss-false-seed-1-K"
    assert commands(plan) == [
        f"python build_vocab.py '--input_file=data/corpus/train*.txt' --output_file={vocab} --vocab_size=400",
        "python create_pretraining_data.py '--input_file=data/corpus/held_out*.txt' "
        f"--output_file=out/records-held-out-K/output/held_out.tfrecord --vocab_file={vocab} {lengths} --dupe_factor=1 "
        "--generator=exact",
        "python create_pretraining_data.py '--input_file=data/corpus/train*.txt' "
        f"--output_file=out/records-train-K/output/train --vocab_file={vocab} {lengths} --dupe_factor=2 "
        "--generator=sharded",
        "python run_pretraining.py --do_train=true '--input_file=out/records-train-K/output/train-?????-of-?????' "
        f"--bert_config_file={model}/bert_config.json --vocab_file={vocab} --output_dir={model}/output {lengths} "
        "--train_batch_size=8 --num_train_steps=10 --num_warmup_steps=2 --learning_rate=0.001 "
        "--save_checkpoints_steps=2 --keep_checkpoint_max=0 --use_next_sentence=false --random_seed=1 "
        "--dtype=bfloat16",
        f"python run_pretraining.py --do_eval=true --input_file=out/records-held-out-K/output/held_out.tfrecord "
        f"--model={model}/output --output_dir={model.replace('pretraining', 'evaluation')}/output --eval_batch_size=32 "
        f"--max_eval_steps=0 {lengths} --use_next_sentence=false --dtype=bfloat16",
        f"python run_classifier.py --model={model}/output "
        f"--output_dir={model.replace('pretraining', 'fine-tuning-sts-b')}/output --do_train=true --do_eval=true "
        "--data_dir=data/STS-B --task_name=STS-B --num_train_epochs=1.0 --train_batch_size=8 --eval_batch_size=32 "
        "--shuffle_buffer_size=0 --max_seq_length=32 --dtype=bfloat16 --random_seed=1",
    ]
    pretraining = next(step for step in plan.steps if step.kind == "pretraining")
    assert dict(pretraining.config) == {
        "num_hidden_layers": 2,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 400,
        "max_position_embeddings": 128,
        "type_vocab_size": 2,
    }


def test_the_commands_of_an_ensemble_after_triviaqa_by_value(monkeypatch):
    monkeypatch.chdir(ROOT)
    experiment = read_experiment("table2", CATALOGUE)
    last = dataclasses.replace(experiment.rows[-1], ensemble=2)
    plan = make_plan(
        dataclasses.replace(experiment, rows=[last]),
        CATALOGUE.scale("paper"),
        CATALOGUE,
        Settings(encoders=ENCODERS),
    )
    squad = "--train_file=data/SQuAD/train-v1.1.json --predict_file=data/SQuAD/dev-v1.1.json --num_train_epochs=3.0 "
    squad += "--learning_rate=5e-05 --train_batch_size=32 --predict_batch_size=32 --shuffle_buffer_size=0"
    first = "out/fine-tuning-triviaqa-large-seed-{}-K/output"
    second = "out/fine-tuning-squad-1.1-large-after-triviaqa-seed-{}-K/output"
    made = "out/data-triviaqa-K/output/triviaqa.json"
    expected = [
        "python convert_triviaqa.py --input_file=data/TriviaQA/qa/wikipedia-train.json "
        f"--data_dir=data/TriviaQA/evidence/wikipedia --output_file={made}"
    ]
    for seed in (1, 2):
        expected += [
            f"python run_squad.py --model=bert_large --output_dir={first.format(seed)} --do_train=true "
            f"--train_file={made} --num_train_epochs=3.0 --learning_rate=5e-05 --train_batch_size=32 "
            f"--shuffle_buffer_size=0 --random_seed={seed}",
            f"python run_squad.py --model={first.format(seed)} --output_dir={second.format(seed)} --do_train=true "
            f"--do_predict=true {squad} --random_seed={seed}",
        ]
    expected.append(
        "python run_squad.py --model=bert_large "
        "--output_dir=out/ensemble-squad-1.1-large-after-triviaqa-seed-1-to-2-K/output --do_predict=true "
        f"{squad} --ensemble_dirs={second.format(1)},{second.format(2)}"
    )
    assert commands(plan) == expected


def test_the_test_set_is_evaluated_with_the_fine_tuned_model(monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = plan_of("table7", seeds=1, encoders={"base": {"num_hidden_layers": 6}})
    assert plan.rows[0].label == "Fine-tuned, BERT-Base"
    assert plan.left_out == (
        "row 'Fine-tuned, BERT-Large': its model is not given; add --encoder=large=FOLDER",
    )
    flags = "--num_train_epochs={} --learning_rate={} --train_batch_size=32 --eval_batch_size=32 "
    flags += "--adam_bias_correction=true"
    tuned = "out/fine-tuning-wnut-17-base-seed-1-K/output"
    frozen = "out/fine-tuning-wnut-17-base-feature-layers-embeddings-seed-1-K/output"
    assert commands(plan)[:3] == [
        f"python run_ner.py --model=bert --output_dir={tuned} --do_train=true --do_eval=true --data_dir=data/WNUT-17 "
        f"{flags.format(3.0, 1e-04)} --random_seed=1",
        f"python run_ner.py --model={tuned} --output_dir=out/test-wnut-17-base-seed-1-K/output --do_eval=true "
        f"--data_dir=data/WNUT-17 {flags.format(3.0, 1e-04)} --dev_file=data/WNUT-17/test.conll",
        f"python run_ner.py --model=bert --output_dir={frozen} --do_train=true --do_eval=true --data_dir=data/WNUT-17 "
        f"{flags.format(10.0, 0.001)} --bilstm_size=128 --feature_layers=embeddings --random_seed=1",
    ]


@pytest.mark.parametrize("scale", CATALOGUE.scales)
@pytest.mark.parametrize("name", names_of(FOLDER))
def test_every_table_expands_at_every_scale_with_flags_that_the_scripts_have(name, scale):
    plan = plan_of(name, scale)
    assert plan.cells
    for step in plan.steps:
        if step.config:
            BertConfig.from_dict(dict(step.config)).validate()
    labels = collections.Counter((step.kind, step.label) for step in plan.steps)
    assert set(labels.values()) == {1}, "two steps that differ have names that do not"


def test_rows_share_what_is_equal():
    """Of table 5: one vocabulary, one set of records for each of two phases, three models for four rows; of table 3, in
    which two columns are SQuAD, one run for both."""
    assert count_of(plan_of("table5")) == {
        "vocabulary": 1,
        "records": 2,
        "pretraining": 3 * 2,
        "fine-tuning": 4 * 4 * 3,  # rows, columns, seeds
    }
    assert count_of(plan_of("table3")) == {"fine-tuning": 2 * 3}
    # Table 8 has records for each mix, and table 6 a model for each size.
    assert count_of(plan_of("table8"))["records"] == 6 * 2
    assert count_of(plan_of("table6")) == {
        "vocabulary": 1,
        "records": 2 + 1,  # those on held-out text
        "pretraining": 6 * 2,
        "evaluation": 6,
        "fine-tuning": 6 * 3 * 3,
    }


def test_experiments_share_what_is_equal():
    layout = Layout("out", "data", {"base": "bert"}, ".")

    def models(name):
        return {layout.folder(step) for step in plan_of(name).steps if step.kind == "pretraining"}

    assert len(models("table5") & models("table6")) == 2  # both phases of BERT-Base
    assert len(models("table5") & models("table8")) == 2
    assert models("figure5") < models("table5")  # masked LM and left to right


def test_a_figure_starts_from_the_checkpoints_of_one_training():
    plan = plan_of("figure5", seeds=1)
    starts = [step.flag("model") for step in plan.steps if step.kind == "fine-tuning"]
    assert [start.path for start in starts] == [
        # 20 to 100 % of 2,500 updates of the first phase and 2,000 of the second
        "model.ckpt-900", "model.ckpt-1800", "model.ckpt-200", "model.ckpt-1100", "",
    ] * 2  # fmt: skip
    for model in (starts[:5], starts[5:]):
        first, second, *others = (start.step for start in model)
        assert first == second
        assert len(set(others)) == 1
        assert others[0].flag("init_checkpoint") == Output(first)
    assert plan.num_steps == 4500
    assert plan_of("figure5", "paper").num_steps == 1_000_000


def test_the_end_of_a_phase_is_its_newest_checkpoint():
    experiment = read_experiment("figure5", CATALOGUE)
    end = dataclasses.replace(experiment.columns[0], at=2500 / 4500)
    plan = make_plan(
        dataclasses.replace(experiment, columns=[end]), CATALOGUE.scale("tiny"), CATALOGUE, Settings(seeds=1)
    )
    for step in plan.steps:
        if step.kind == "fine-tuning":
            assert step.flag("model").path == ""
            assert step.flag("model").step.flag("num_train_steps") == 2500


def test_a_checkpoint_that_is_not_kept_is_refused():
    experiment = read_experiment("figure5", CATALOGUE)
    first, *others = experiment.columns
    odd = dataclasses.replace(experiment, columns=[dataclasses.replace(first, at=0.25), *others])
    with pytest.raises(InputError, match=r"update 1125 of its phase, which is no multiple of save_checkp"):
        make_plan(odd, CATALOGUE.scale("tiny"), CATALOGUE, Settings())
    scale = CATALOGUE.scale("tiny")
    of_phases = [dict(phase) for phase in scale.pretraining]
    del of_phases[0]["keep_checkpoint_max"]
    with pytest.raises(
        InputError, match=r"keep_checkpoint_max in \[\[tiny.pretraining\]\], number 1 lets it"
    ):
        make_plan(experiment, dataclasses.replace(scale, pretraining=of_phases), CATALOGUE, Settings())


def test_seeds_of_fine_tunings_go_round_the_pretrainings():
    scale = dataclasses.replace(CATALOGUE.scale("tiny"), seeds=4, pretraining_seeds=2)
    plan = make_plan(read_experiment("table6", CATALOGUE), scale, CATALOGUE, Settings())
    tuned = [
        step for step in plan.steps if step.kind == "fine-tuning" and step.label.startswith("SST-2 1/128/2")
    ]
    assert [(step.seed, step.flag("model").step.seed) for step in tuned] == [(1, 1), (2, 2), (3, 1), (4, 2)]
    assert {cell.seed for cell in plan.cells if cell.column.task is None} == {1, 2}


def test_the_papers_second_phase_goes_on_with_the_first():
    plan = plan_of("table5", "paper")
    first, second = [step for step in plan.steps if step.kind == "pretraining"][:2]
    assert first.flag("init_checkpoint") is None
    assert second.flag("init_checkpoint") == Output(first)
    assert [step.flag("max_seq_length") for step in (first, second)] == [128, 512]
    assert [step.flag("train_batch_size") * step.flag("num_train_steps") for step in (first, second)] == [
        256 * 900_000,
        256 * 100_000,
    ]
    assert first.flag("input_file").path == "train-?????-of-?????"


def test_masking_rates_reach_the_records():
    rates = [
        step.flag("mask_rates")
        for step in plan_of("table8").steps
        if step.kind == "records" and step.flag("max_seq_length") == 128
    ]
    assert rates == [None, "1.0,0.0", "0.8,0.2", "0.8,0.0", "0.0,0.8", "0.0,1.0"]


def test_the_more_special_flags_of_a_fine_tuning_win():
    """The task's recipe, then models from text, then the task's recipe for them, then frozen features."""
    wanted = "learning_rate", "num_train_epochs", "train_batch_size"

    def shown(name: str, task: str) -> dict[str, tuple]:
        return {
            step.flag("feature_layers", ""): tuple(map(step.flag, wanted))
            for step in plan_of(name, encoders={"base": ENCODERS["base"]}).steps
            if step.kind == "fine-tuning" and step.label.startswith(task)
        }

    given = shown("table7", "WNUT-17")
    assert given[""] == (1e-4, 3.0, 32)
    assert set(given.values()) == {given[""], (1e-3, 10.0, 32)}
    assert shown("table8", "STS-B") == {"": (3e-4, 1.5, 32)}
    assert shown("table8", "WNUT-17") == {"": (1e-3, 5.0, 16), "concat_of_last_four": (1e-3, 10.0, 16)}


def test_without_any_given_model_the_remedy_is_named():
    with pytest.raises(
        InputError, match=r"table1.toml: only fine-tunes models that are given \(base and large\)"
    ):
        plan_of("table1", encoders={})


def test_a_size_that_nobody_can_read_is_refused():
    scale = dataclasses.replace(CATALOGUE.scale("tiny"), sizes={"12/768/12": "four"})
    with pytest.raises(
        InputError, match="at --scale=tiny it is 'four', which is not layers/hidden size/heads"
    ):
        config_of("12/768/12", scale, {})
    with pytest.raises(InputError, match="at --scale=tiny: hidden_size"):
        config_of("2/100/3", scale, {})


# What a row may get wrong, and the sentence that says so.
@pytest.mark.parametrize(
    ("pretraining", "sentence"),
    [
        (
            "lerning_rate = 1.0",
            r"run_pretraining.py has no flag --lerning_rate .*; did you mean learning_rate\?",
        ),
        ("num_train_steps = 'abc'", r"--num_train_steps=abc: must be a whole number \(pretraining 2/16/2"),
        ("num_train_steps = 0", r"--num_train_steps=0: must be positive and at most"),
        ("learning_rate = 'fast'", r"--learning_rate=fast: must be a number"),
        ("dtype = 'float8'", r"--dtype=float8: must be one of .*float32"),
        (
            "learning_rate = [1e-3, 1e-4]",
            r"run_pretraining.py, --learning_rate: takes one value, and no list",
        ),
        ("jit_compile = 'maybe'", r"--jit_compile=maybe: must be true or false"),
        (
            "output_dir = 'here'",
            r"two.toml, or the scale or the task .*: the experiment sets --output_dir itself",
        ),
        ("random_seed = 3", r"the experiment sets --random_seed itself; remove it"),
        (
            "learning_rate = nan",
            r"pretraining: must be a table, each value a text, a finite number, true, false",
        ),
        ("gcp_project = { a = 1 }", r"pretraining: must be a table, each value a text, a finite number"),
        ("gcp_project = [['a']]", r"pretraining: must be a table, each value a text, a finite number"),
        ("gcp_project = 2020-01-01", r"pretraining: must be a table, each value a text, a finite number"),
    ],
)
def test_flags_that_no_script_would_take_are_refused_before_anything_runs(tmp_path, pretraining, sentence):
    path = tmp_path / "two.toml"
    path.write_text(TWO_ROWS.replace("use_next_sentence = false", pretraining))
    with pytest.raises(InputError, match=sentence):
        make_plan(read_experiment(str(path), CATALOGUE), CATALOGUE.scale("smoke"), CATALOGUE, Settings())


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("records = { output_file = 'x' }", "the experiment sets --output_file itself"),
        (
            "records = { max_seq_length = 'long' }",
            "create_pretraining_data.py, --max_seq_length=long: must be a whole",
        ),
        ("fine_tuning = { model = 'x' }", "the experiment sets --model itself"),
        ("fine_tuning = { data_dir = 'x' }", "the experiment sets --data_dir itself"),
        ("fine_tuning = { num_train_epochs = 'abc' }", "--num_train_epochs=abc: must be a number"),
        (
            "fine_tuning = { search = 'num_train_epochs=2,x' }",
            "num_train_epochs is '2,x'; write numbers with commas",
        ),
        (
            "config = { hiden_size = 4 }",
            "a bert_config.json has no field 'hiden_size' .*did you mean hidden_size",
        ),
    ],
)
def test_other_tables_of_a_row_are_checked_in_the_same_way(tmp_path, field, sentence):
    path = tmp_path / "two.toml"
    path.write_text(TWO_ROWS.replace("pretraining = { use_next_sentence = false }", field))
    with pytest.raises(InputError, match=sentence):
        make_plan(read_experiment(str(path), CATALOGUE), CATALOGUE.scale("smoke"), CATALOGUE, Settings())


def test_nothing_starts_from_a_search(tmp_path):
    """A search leaves a model for each trial."""
    path = tmp_path / "two.toml"
    search = 'first_task = "CoLA"\nfine_tuning = { search = true }'
    path.write_text(TWO_ROWS.replace("pretraining = { use_next_sentence = false }", search))
    with pytest.raises(InputError, match=r"CoLA 2/16/2 .*is a search at --scale=smoke, which leaves a"):
        make_plan(read_experiment(str(path), CATALOGUE), CATALOGUE.scale("smoke"), CATALOGUE, Settings())


def test_what_is_left_out_has_its_reason(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(
        TWO_ROWS.replace(
            '{ task = "STS-B" }]',
            '{ task = "CoLA", set = "test", label = "test" }, { task = "RTE" }, { task = "SST-2" }, { task = "CoLA" },'
            '{ task = "MRPC" }]',
        ).replace(', "STS-B" = 85.8', "")
    )
    experiment = read_experiment(str(path), CATALOGUE)
    plan = make_plan(
        experiment, CATALOGUE.scale("smoke"), CATALOGUE, Settings(is_present=lambda task: task.name == "CoLA")
    )
    assert plan.left_out == (
        "column 'test': CoLA has no test set with labels",
        "column 'RTE': --scale=smoke has neither its task nor one that stands in for it",
        "column 'SST-2': --data_dir has not the data of SST-2",
        "column 'MRPC': what may stand in for its task (CoLA) is shown already, or --data_dir lacks it",
    )
    no_measure = dataclasses.replace(experiment, columns=experiment.columns[1:3])
    with pytest.raises(
        InputError, match=r"has nothing to train at --scale=smoke \(column 'test': CoLA has no test"
    ):
        make_plan(no_measure, CATALOGUE.scale("smoke"), CATALOGUE, Settings())
    of_absent_task = dataclasses.replace(experiment.rows[0], first_task="SWAG")
    with pytest.raises(InputError, match=r"nothing to train .*row 'BERT': --scale=smoke has no task 'SWAG'"):
        make_plan(
            dataclasses.replace(experiment, rows=[of_absent_task]),
            CATALOGUE.scale("smoke"),
            CATALOGUE,
            Settings(),
        )


def test_lists_of_flags_have_commas(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(TWO_ROWS.replace("use_next_sentence = false", "gcp_project = ['a', 'b']"))
    plan = make_plan(read_experiment(str(path), CATALOGUE), CATALOGUE.scale("smoke"), CATALOGUE, Settings())
    assert sum("--gcp_project=a,b" in line for line in commands(plan)) == 2  # the training and its evaluation


def test_the_work_of_steps():
    plan = plan_of("table5", "paper")
    steps: list[Step] = plan.steps
    first = next(step for step in steps if step.kind == "pretraining")
    assert (first.work.length, first.work.num_trained, first.work.num_predictions) == (128, 256 * 900_000, 20)
    row = dataclasses.replace(plan.rows[0], pretraining={"num_train_steps": 20, "train_batch_size": 16})
    own = make_plan(
        dataclasses.replace(plan.experiment, rows=[row]), CATALOGUE.scale("paper"), CATALOGUE, Settings()
    )
    assert {step.work.num_trained for step in own.steps if step.kind == "pretraining"} == {20 * 16}
    left_to_right = next(
        step for step in steps if "left_to_right" in step.label and step.kind == "pretraining"
    )
    assert left_to_right.work.num_predictions == 127  # the next token of every position but the last
    searched = next(step for step in steps if step.label.startswith("SST-2"))
    assert searched.work.num_trained == 4 * 3 * 67_349  # learning rates, epochs
    assert searched.work.num_evaluated == 4 * 872
    features = next(step for step in plan_of("table7", "paper").steps if step.flag("feature_layers"))
    assert features.work.num_frozen_layers == 12
