"""The expansion of declarations into commands: by value, for every table at every scale, and what is shared."""

import collections
import dataclasses

import pytest

from official_bert.cli.commands import COMMANDS
from official_bert.config import BertConfig
from official_bert.experiments.declarations import names_of, read_catalogue, read_experiment
from official_bert.experiments.plan import Plan, config_of, make_plan, shown_columns
from official_bert.experiments.steps import Layout, Place
from official_bert.io.errors import InputError
from tests.experiment_data import TWO_ROWS
from tests.shared import ROOT

FOLDER = str(ROOT / "experiments")
CATALOGUE = read_catalogue(FOLDER)


def plan_of(experiment, scale="tiny", **settings) -> Plan:
    """The plan of an experiment, or of one by its name, at a scale, or at one by its name."""
    if isinstance(experiment, str):
        experiment = read_experiment(experiment, CATALOGUE)
    scale = CATALOGUE.scales.get(scale, scale) if isinstance(scale, str) else scale
    settings.setdefault("encoders", ("base", "large"))
    return make_plan(experiment, scale, CATALOGUE, COMMANDS, **settings)


@pytest.fixture
def two_rows(tmp_path):
    """A function that plans the experiment of two rows at the scale smoke with a change of its text."""

    def plan(old: str = "", new: str = "", **settings) -> Plan:
        path = tmp_path / "two.toml"
        assert old in TWO_ROWS
        path.write_text(TWO_ROWS.replace(old, new))
        return plan_of(read_experiment(str(path), CATALOGUE), "smoke", **settings)

    return plan


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


def test_the_commands_of_a_pretraining_by_value(two_rows, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = two_rows(training_flags={"dtype": "bfloat16"})
    plan = dataclasses.replace(plan, cells=[cell for cell in plan.cells if cell.row == "No NSP"])
    vocab = "out/vocabulary-400-K/output/vocab.txt"
    lengths = "--max_seq_length=32 --max_predictions_per_seq=5"
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
        "--save_checkpoints_steps=2 --keep_checkpoint_max=0 --use_next_sentence_loss=false --random_seed=1 "
        "--dtype=bfloat16",
        f"python run_pretraining.py --do_eval=true --input_file=out/records-held-out-K/output/held_out.tfrecord "
        f"--model={model}/output --output_dir={model.replace('pretraining', 'evaluation')}/output --eval_batch_size=32 "
        f"--max_eval_steps=0 {lengths} --use_next_sentence_loss=false --dtype=bfloat16",
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
    plan = plan_of(dataclasses.replace(experiment, rows=[last]), "paper")
    squad = "--train_file=data/SQuAD/train-v1.1.json --predict_file=data/SQuAD/dev-v1.1.json --num_train_epochs=3.0 "
    squad += "--learning_rate=5e-05 --train_batch_size=32 --predict_batch_size=32 --shuffle_buffer_size=0"
    first = "out/fine-tuning-triviaqa-large-seed-{}-K/output"
    second = "out/fine-tuning-squad-1.1-large-after-triviaqa-seed-{}-K/output"
    made = "out/data-triviaqa-K/output/triviaqa.json"
    expected = [
        "python convert_triviaqa.py --triviaqa_file=data/TriviaQA/qa/wikipedia-train.json "
        f"--evidence_dir=data/TriviaQA/evidence/wikipedia --output_file={made}"
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
        "--output_dir=out/ensemble-squad-1.1-large-after-triviaqa-seed-1-to-2-K/output "
        f"--do_predict=true {squad} --ensemble_dirs={second.format(1)},{second.format(2)}"
    )
    assert commands(plan) == expected


def test_the_commands_of_named_entities_by_value(monkeypatch):
    """Fine-tuning, the test set, and frozen features with their rate, of the one model that is given."""
    monkeypatch.chdir(ROOT)
    plan = plan_of("table7", encoders=["base"], num_seeds=1)
    assert plan.rows[0].label == "Fine-tuned, BERT-Base"
    assert plan.left_out == [
        "row 'Fine-tuned, BERT-Large': its model is not given; add --encoder=large=FOLDER"
    ]
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
    labels = collections.Counter(step.name for step in plan.steps)
    assert set(labels.values()) == {1}, "two steps that differ have names that do not"


def test_rows_share_what_is_equal():
    """Of table 5: one vocabulary, one set of records for each of two phases, three models for four rows; of table 3, in
    which two columns are SQuAD, one run for both."""
    fine_tunings = {"fine-tuning": 4 * 4 * 3}  # rows, columns, seeds
    assert count_of(plan_of("table5")) == {"vocabulary": 1, "records": 2, "pretraining": 3 * 2} | fine_tunings
    assert count_of(plan_of("table3")) == {"fine-tuning": 2 * 3}
    assert count_of(plan_of("table8"))["records"] == 6 * 2  # for each mix
    assert count_of(plan_of("table6")) == {
        "vocabulary": 1,
        "records": 2 + 1,  # those on held-out text
        "pretraining": 6 * 2,  # a model for each size
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
    plan = plan_of("figure5", num_seeds=1)
    starts = [step.flag("model") for step in plan.steps if step.kind == "fine-tuning"]
    assert [start.path for start in starts] == [
        # 20 to 100 % of 2,500 updates of the first phase and 2,000 of the second
        "model.ckpt-900", "model.ckpt-1800", "model.ckpt-200", "model.ckpt-1100", "",
    ] * 2  # fmt: skip
    for model in (starts[:5], starts[5:]):
        first, second, *others = (start.root for start in model)
        assert first == second
        assert len(set(others)) == 1
        assert others[0].flag("init_checkpoint") == Place(first)
    end = dataclasses.replace(plan.experiment.columns[0], at=2500 / 4500)
    of_end = plan_of(dataclasses.replace(plan.experiment, columns=[end]))
    (start,) = {step.flag("model") for step in of_end.steps if step.label.endswith("4/128/2 seed 1")}
    assert (start.path, start.root.flag("num_train_steps")) == (
        "",
        2500,
    )  # a phase ends with its newest checkpoint


def test_a_checkpoint_that_is_not_kept_is_refused():
    experiment, scale = read_experiment("figure5", CATALOGUE), CATALOGUE.scales["tiny"]
    first, *others = experiment.columns
    odd = dataclasses.replace(experiment, columns=[dataclasses.replace(first, at=0.25), *others])
    with pytest.raises(InputError, match=r"needs the checkpoint of update 1125 of phase 1; set keep_checkp"):
        plan_of(odd)
    of_phases = [dict(phase) for phase in scale.pretraining]
    del of_phases[0]["keep_checkpoint_max"]
    with pytest.raises(
        InputError, match=r"needs the checkpoint of update 900 of phase 1; .* in tiny.pretraining"
    ):
        plan_of(experiment, dataclasses.replace(scale, pretraining=of_phases))


def test_seeds_of_fine_tunings_go_round_the_pretrainings():
    scale = dataclasses.replace(CATALOGUE.scales["tiny"], seeds=4, pretraining_seeds=2)
    plan = plan_of("table6", scale)
    tuned = [step for step in plan.steps if step.name.startswith("fine-tuning SST-2 1/128/2")]
    assert [(step.seed, step.flag("model").root.seed) for step in tuned] == [(1, 1), (2, 2), (3, 1), (4, 2)]
    assert {cell.seed for cell in plan.cells if cell.column.task is None} == {1, 2}


def test_the_papers_second_phase_goes_on_with_the_first():
    plan = plan_of("table5", "paper")
    first, second = [step for step in plan.steps if step.kind == "pretraining"][:2]
    assert first.flag("init_checkpoint") is None
    assert second.flag("init_checkpoint") == Place(first)
    assert [step.flag("max_seq_length") for step in (first, second)] == [128, 512]
    assert first.flag("input_file").path == "train-?????-of-?????"


def test_masking_rates_reach_the_records():
    rates = [
        (step.flag("mask_token_rate"), step.flag("random_token_rate"))
        for step in plan_of("table8").steps
        if step.kind == "records" and step.flag("max_seq_length") == 128
    ]
    assert rates == [(None, None), (1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.8), (0.0, 1.0)]


def test_the_more_special_flags_of_a_fine_tuning_win():
    """The task's recipe, then models from text, then the task's recipe for them, then frozen features."""
    wanted = "learning_rate", "num_train_epochs", "train_batch_size"

    def shown(name: str, task: str) -> dict[str, tuple]:
        return {
            step.flag("feature_layers", ""): tuple(map(step.flag, wanted))
            for step in plan_of(name, encoders=["base"]).steps
            if step.name.startswith(f"fine-tuning {task}")
        }

    given = shown("table7", "WNUT-17")
    assert given[""] == (1e-4, 3.0, 32)
    assert set(given.values()) == {given[""], (1e-3, 10.0, 32)}
    assert shown("table8", "STS-B") == {"": (3e-4, 1.5, 32)}
    assert shown("table8", "WNUT-17") == {"": (1e-3, 5.0, 16), "concat_of_last_four": (1e-3, 10.0, 16)}


NER = ["NER, fine-tuned", "NER, feature-based"]


@pytest.mark.parametrize(
    ("name", "scale", "expected"),
    [
        ("table5", "paper", ["MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD"]),
        # MRPC's stand-in is shown for QNLI already.
        ("table5", "tiny", ["STS-B for MNLI-m", "CoLA for QNLI", "SST-2", "SQuAD"]),
        ("table6", "tiny", ["LM (perplexity)", "STS-B for MNLI-m", "CoLA for MRPC", "SST-2"]),
        # STS-B and CoLA have columns of their own here and stand in for nothing.
        ("table1", "tiny", ["SST-2", "CoLA", "STS-B"]),
        ("table4", "small", ["CODAH for SWAG"]),
        ("table7", "tiny", ["WNUT-17 for Dev F1", "WNUT-17 for Test F1"]),
        ("table8", "tiny", ["STS-B for MNLI", *(f"WNUT-17 for {label}" for label in NER)]),
    ],
)
def test_columns_of_a_scale(name, scale, expected):
    assert [column.heading for column in plan_of(name, scale).columns] == expected


def test_what_is_left_out_has_its_reason(two_rows):
    columns = '{ task = "CoLA", set = "test", label = "test" }, { task = "RTE" }, { task = "CoLA" }, { task = "MRPC" }'
    plan = two_rows('{ task = "STS-B" }]', f'{columns}, {{ task = "STS-B" }}]')
    assert plan.left_out == [
        "column 'test': CoLA has no test set with labels",
        "column 'RTE': --scale=smoke has neither its task nor one that stands in for it",
        "column 'MRPC': what may stand in for its task (CoLA) is shown already",
    ]
    of_absent_task = [dataclasses.replace(plan.experiment.rows[0], first_task="SWAG")]
    with pytest.raises(InputError, match=r"nothing is left .*row 'BERT': --scale=smoke has no task 'SWAG'"):
        plan_of(dataclasses.replace(plan.experiment, rows=of_absent_task), "smoke")
    with pytest.raises(
        InputError, match=r"table1.toml: nothing is left .*add --encoder=base=FOLDER; row 'BERT-L"
    ):
        plan_of("table1", encoders=[])


def test_one_run_is_not_shown_twice():
    experiment = read_experiment("table1", CATALOGUE)
    experiment = dataclasses.replace(experiment, columns=experiment.columns[:2])  # MNLI-m and MNLI-mm
    shown, left_out = shown_columns(experiment, CATALOGUE.scales["tiny"], CATALOGUE.tasks)
    assert [column.heading for column in shown] == ["STS-B for MNLI-m"]
    assert left_out == ["column 'MNLI-mm': STS-B, which stands in for its task, is shown already"]


def test_a_stand_in_keeps_its_own_metric_and_only_fractions_become_percentages():
    columns = plan_of("table5", "paper").columns
    assert [column.metric for column in columns] == ["eval_accuracy"] * 4 + ["f1"]  # MRPC's own metric is F1
    assert [column.factor for column in columns] == [100.0] * 4 + [1.0]  # SQuAD's is in percent
    columns = plan_of("table5").columns
    assert [column.metric for column in columns] == ["eval_spearman", "eval_matthews", "eval_accuracy", "f1"]
    sst2, metrics = columns[2], ("eval_loss", "global_step", "eval_f1", "eval_pearson")
    columns = [
        dataclasses.replace(sst2, declared=dataclasses.replace(sst2.declared, metric=each))
        for each in metrics
    ]
    assert [column.factor for column in columns] == [1.0, 1.0, 100.0, 100.0]


def test_a_size_that_nobody_can_read_is_refused():
    scale = dataclasses.replace(CATALOGUE.scales["tiny"], sizes={"12/768/12": "four"})
    with pytest.raises(InputError, match="at --scale=tiny: is 'four', which is not layers/hidden size/heads"):
        config_of("12/768/12", scale, {})
    with pytest.raises(InputError, match="at --scale=tiny: hidden_size"):
        config_of("2/100/3", scale, {})


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (
            "pretraining = { lerning_rate = 1.0 }",
            "run_pretraining.py has no lerning_rate; did you mean learning_rate?",
        ),
        ("pretraining = { output_dir = 'here' }", "the experiment sets --output_dir itself; remove it"),
        ("pretraining = { random_seed = 3 }", "the experiment sets --random_seed itself"),
        ("records = { output_file = 'x' }", "the experiment sets --output_file itself"),
        ("fine_tuning = { data_dir = 'x' }", "the experiment sets --data_dir itself"),
        ("config = { hiden_size = 4 }", "bert_config.json has no hiden_size; did you mean hidden_size?"),
        # A search leaves a model for each trial.
        ('first_task = "CoLA"\nfine_tuning = { search = true }', "is a search, which leaves several models"),
    ],
)
def test_flags_that_no_script_would_take_are_refused(two_rows, field, sentence):
    with pytest.raises(InputError) as raised:
        two_rows("pretraining = { use_next_sentence_loss = false }", field)
    assert sentence in str(raised.value)


def test_lists_of_flags_have_commas(two_rows):
    plan = two_rows("use_next_sentence_loss = false", "gcp_project = ['a', 'b']")
    assert sum("--gcp_project=a,b" in line for line in commands(plan)) == 2  # the training and its evaluation
