"""The expansion of declarations into commands: by value, for every table at every scale, and
what is shared.
"""

import collections
import dataclasses

import pytest

from official_bert.config import BertConfig
from official_bert.extensions.experiments.declarations import list_experiments, read_experiment
from official_bert.extensions.experiments.plan import Plan
from official_bert.extensions.experiments.steps import Layout, Place
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


def commands(plan: Plan) -> list[str]:
    """The commands with K for the identity of each step, which is another for each change of a
    flag.
    """
    layout = Layout("out", "data", {"base": "bert", "large": "bert_large"})
    lines = []
    for step in plan.steps:
        line = layout.shell_line(step)
        for each in plan.steps:
            line = line.replace(layout.key(each), "K")
        lines.append(line)
    return lines


def test_the_commands_of_a_pretraining_by_value(two_rows, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = two_rows(training_flags={"dtype": "bfloat16"})
    plan = dataclasses.replace(plan, cells=[cell for cell in plan.cells if cell.row == "No NSP"])
    vocab = "out/vocabulary-400-K/output/vocab.txt"
    lengths = "--max_seq_length=32 --max_predictions_per_seq=5"
    model = "out/pretraining-2-16-2-use-next-sentence-false-seed-1-K"
    assert commands(plan)[2:] == [
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
        f"--output_dir={model.replace('pretraining', 'evaluation')}/output --eval_batch_size=32 "
        f"--max_eval_steps=0 {lengths} --use_next_sentence=false --dtype=bfloat16",
        f"official-bert run_classifier --model={model}/output "
        f"--output_dir={model.replace('pretraining', 'fine-tuning-sts-b')}/output --do_train=true "
        "--do_eval=true --data_dir=data/STS-B --task_name=STS-B --num_train_epochs=1.0 "
        "--train_batch_size=8 --eval_batch_size=32 --shuffle_buffer_size=0 --max_seq_length=32 "
        "--dtype=bfloat16 --random_seed=1",
    ]
    config = next(dict(step.config) for step in plan.steps if step.kind == "pretraining")
    assert (
        config["hidden_size"],
        config["intermediate_size"],
        config["max_position_embeddings"],
    ) == (16, 64, 128)


def test_minimal_pairs_are_scored_by_the_pretrained_model(two_rows, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = two_rows('measure = "perplexity"', 'measure = "minimal_pairs"')
    (*_, last) = (line for line in commands(plan) if "minimal_pairs" in line)
    assert last == (
        "official-bert evaluate_minimal_pairs --model=out/pretraining-2-16-2-use-next-sentence-false-seed-1-K/output "
        "--input_file=data/BLiMP.zip "
        "--output_file=out/minimal-pairs-2-16-2-use-next-sentence-false-seed-1-K/output/minimal_pairs.tsv "
        "--num_records=2"
    )


def test_a_scale_leaves_rows_and_columns_out(tmp_path):
    (tmp_path / "two.toml").write_text(TWO_ROWS)
    scale = dataclasses.replace(CATALOGUE.scales["smoke"], leaves_out=["No NSP", "STS-B"])
    plan = plan_of(str(tmp_path / "two.toml"), scale)
    assert ([row.label for row in plan.rows], [column.label for column in plan.columns]) == (
        ["BERT"],
        ["Perplexity"],
    )
    sentences = (
        "column 'STS-B': --scale=smoke does not measure it",
        "row 'No NSP': --scale=smoke does not run it",
    )
    assert plan.left_out == [*sentences]


def test_an_ensemble_after_triviaqa(monkeypatch):
    monkeypatch.chdir(ROOT)
    experiment = read_experiment("table2", CATALOGUE)
    last = dataclasses.replace(experiment.rows[-1], ensemble=2)
    first, second, *_, ensemble = commands(
        plan_of(dataclasses.replace(experiment, rows=[last]), "paper")
    )
    trained = "out/fine-tuning-triviaqa-large-seed-1-K/output"
    assert (
        f" --model=bert_large --output_dir={trained} --do_train=true "
        "--train_file=data/TriviaQA/train.json " in first
    )
    assert "do_predict" not in first
    member = "out/fine-tuning-squad-1.1-large-after-triviaqa-seed-{}-K/output"
    assert (
        f" --model={trained} --output_dir={member.format(1)} --do_train=true --do_predict=true "
        in second
    )
    assert "do_train" not in ensemble
    assert ensemble.endswith(f" --ensemble_dirs={member.format(1)},{member.format(2)}")


def test_the_test_set_is_evaluated_with_the_fine_tuned_model(monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = plan_of("table7", encoders=["base"], num_seeds=1)
    assert plan.left_out == [
        "row 'Fine-tuned, BERT-Large': its model is not given; add --model=large=FOLDER"
    ]
    tuned = "out/fine-tuning-wnut-17-base-seed-1-K/output"
    assert commands(plan)[1] == (
        f"official-bert run_ner --model={tuned} --output_dir=out/test-wnut-17-base-seed-1-K/output "
        "--do_eval=true --data_dir=data/WNUT-17 --num_train_epochs=3.0 --learning_rate=5e-05 "
        "--train_batch_size=32 --eval_batch_size=32 --optimizer_type=adamw_bias_correction "
        "--max_seq_length=64 --dev_file=data/WNUT-17/test.conll"
    )


@pytest.mark.parametrize("scale", CATALOGUE.scales)
@pytest.mark.parametrize("name", list_experiments(CATALOGUE.folder))
def test_every_table_expands_at_every_scale_with_flags_that_the_scripts_have(name, scale):
    plan = plan_of(name, scale)
    assert plan.cells
    for step in plan.steps:
        if step.config:
            BertConfig.from_dict(dict(step.config)).validate()
    labels = collections.Counter(step.name for step in plan.steps)
    assert set(labels.values()) == {1}, "two steps that differ have names that do not"


def test_rows_share_what_is_equal():
    """Table 5 has three models for four rows; in table 3 two columns are SQuAD, with one run for
    both.
    """

    def count_of(name: str, scale: str = "desk") -> dict[str, int]:
        return collections.Counter(step.kind for step in plan_of(name, scale).steps)

    steps = count_of("table5", "paper")
    # Of two phases.
    assert (steps["records"], steps["pretraining"], steps["fine-tuning"]) == (2, 3 * 2, 4 * 5 * 5)
    assert count_of("table8", "paper")["records"] == 6 * 2  # for each mix
    shared = {"vocabulary": 1, "records": 1, "minimal pairs": 3 * 2}
    # Rows, columns, seeds.
    assert count_of("table5") == shared | {"pretraining": 3 * 2, "fine-tuning": 3 * 3 * 2}
    shared |= {"minimal pairs": 4 * 2, "pretraining": 4 * 2}
    # Whose trainings draw the masks.
    assert count_of("table8") == shared | {"fine-tuning": 4 * 2 * 2}
    assert count_of("table6") == shared | {
        "records": 1 + 1,
        "evaluation": 4 * 2,
        "fine-tuning": 4 * 3 * 2,
    }


def test_experiments_share_what_is_equal():
    """BERT-Base of tables 6 and 8; at the scale desk it is the second row of table 5, without
    next sentences.
    """
    layout = Layout("out", "data", {"base": "bert"})

    def models(name, scale="desk"):
        return {
            layout.folder(step) for step in plan_of(name, scale).steps if step.kind == "pretraining"
        }

    assert len(models("table5") & models("table6") & models("table8")) == 2  # two seeds
    # Two phases.
    assert (
        len(models("table5", "paper") & models("table6", "paper") & models("table8", "paper")) == 2
    )
    assert models("figure5") < models("table5")  # masked LM and left to right
    first, second, *_ = {
        step.label: step for step in plan_of("table5").steps if step.kind == "pretraining"
    }
    assert (first, second) == (
        "4/256/4 use_next_sentence=True seed 1",
        "4/256/4 use_next_sentence=True seed 2",
    )


def test_masks_are_a_training_s_where_it_draws_them(two_rows):
    """Else they are those of the records, where other flags of records stay."""
    for scale, kind, other in (
        ("desk", "pretraining", "records"),
        ("small", "records", "pretraining"),
    ):
        steps = plan_of("table8", scale).steps
        rates = {
            step.flag("mask_rates")
            for step in steps
            if step.kind == kind and "mask_rates" in step.label
        }
        assert {"1.0,0.0", "0.8,0.2", "0.0,1.0"} <= rates
        assert {step.flag("mask_rates") for step in steps if step.kind == other} == {None}
    experiment = two_rows(
        "pretraining = {", 'records = { dupe_factor = 7, mask_rates = "0.8,0.1" }\npretraining = {'
    ).experiment
    steps = plan_of(experiment, "desk", num_seeds=1).steps
    assert {(step.flag("dupe_factor"), step.flag("mask_rates")) for step in steps} >= {
        (2, None),
        (7, None),
    }
    assert all(step.flag("mask_rates") is None for step in steps), "it is the default"
    of_row = 'records = { mask_rates = "1.0,0.0" }\npretraining = { dynamic_masking = true, '
    steps = plan_of(two_rows("pretraining = {", of_row).experiment, "small").steps
    assert "1.0,0.0" in {step.flag("mask_rates") for step in steps if step.kind == "pretraining"}


def test_a_row_s_flags_count_where_they_change_a_phase(two_rows):
    """Those that do not make no other model, and flags of the experiment's own are refused in
    any case.
    """

    def models(flags: str, scale: str) -> list:
        plan = two_rows(
            "pretraining = { use_next_sentence = false }", f"pretraining = {{ {flags} }}"
        )
        steps = plan_of(plan.experiment, scale, num_seeds=1).steps
        return [step for step in steps if step.kind == "pretraining"]

    # Phases of one model.
    assert len(models("use_next_sentence = true, adam_beta1 = 0.9", "paper")) == 2
    phases = models("learning_rate = 1e-5", "paper")  # the rate of the second phase alone
    assert [step.flag("learning_rate") for step in phases] == [1e-4, 1e-5, 1e-5, 1e-5]
    assert phases[2].label == "12/768/12 learning_rate=1e-05 seed 1 phase 1"
    with pytest.raises(InputError, match="sets --do_train itself"):
        models("do_train = false", "paper")
    (evaluation,) = {
        step for step in plan_of("table6").steps if step.name == "evaluation 4/256/4 seed 1"
    }
    assert evaluation.flag("use_next_sentence") is False


def test_a_figure_starts_from_the_checkpoints_of_one_training():
    scale = CATALOGUE.scales["paper"]
    phases = [phase | {"keep_checkpoint_max": 0} for phase in scale.pretraining]
    plan = plan_of("figure5", dataclasses.replace(scale, pretraining=phases), num_seeds=1)
    starts = [step.flag("model") for step in plan.steps if step.kind == "fine-tuning"]
    paths = ["model.ckpt-200000", "model.ckpt-400000", "model.ckpt-600000", "model.ckpt-800000", ""]
    assert [start.path for start in starts] == paths * 2  # the last is the end of the second phase
    named = {step.name: step.flag("model") for step in plan.steps if step.kind == "minimal pairs"}
    assert [*named.values()] == starts  # and each has a name of its own
    for model in (starts[:5], starts[5:]):
        first, *others, last = (start.root for start in model)
        assert others == [first] * 3
        assert last.flag("init_checkpoint") == Place(first)

    def start_of(at: float) -> Place:
        columns = [dataclasses.replace(plan.experiment.columns[0], at=at)]
        steps = plan_of(
            dataclasses.replace(plan.experiment, columns=columns), plan.scale, num_seeds=1
        ).steps
        return next(step.flag("model") for step in steps if step.kind == "fine-tuning")

    end, within = start_of(0.9), start_of(0.94)
    assert (end.path, end.root) == ("", starts[0].root)  # a phase ends with its newest checkpoint
    assert (within.path, within.root) == ("model.ckpt-40000", starts[4].root)


def test_a_checkpoint_that_is_not_kept_is_refused():
    experiment = read_experiment("figure5", CATALOGUE)
    odd = [dataclasses.replace(experiment.columns[0], at=0.25)]
    with pytest.raises(
        InputError, match=r"needs the checkpoint of update 1250 of phase 1; set keep_checkp"
    ):
        plan_of(dataclasses.replace(experiment, columns=odd))
    # Of which the last five are kept.
    phases = [{"num_train_steps": 5000, "save_checkpoints_steps": 1000}]
    with pytest.raises(InputError, match=r"update 1000 of phase 1; .* in desk.pretraining"):
        plan_of(experiment, dataclasses.replace(CATALOGUE.scales["desk"], pretraining=phases))


def test_seeds_of_fine_tunings_go_round_the_pretrainings():
    scale = dataclasses.replace(CATALOGUE.scales["desk"], seeds=4, pretraining_seeds=2)
    plan = plan_of("table6", scale)
    tuned = [step for step in plan.steps if step.name.startswith("fine-tuning SST-2 2/128/2")]
    assert [(step.seed, step.flag("model").root.seed) for step in tuned] == [
        (1, 1),
        (2, 2),
        (3, 1),
        (4, 2),
    ]
    assert {cell.seed for cell in plan.cells if cell.column.task is None} == {1, 2}


def test_the_more_special_flags_of_a_fine_tuning_win(two_rows):
    """The task's recipe, then models from text, then the task's recipe for them, then the row."""
    wanted = "learning_rate", "num_train_epochs", "train_batch_size"
    recipes = CATALOGUE.scales["desk"].recipes | {
        "WNUT-17": {"learning_rate": 1e-4, "train_batch_size": 8}
    }
    scale = dataclasses.replace(
        CATALOGUE.scales["desk"], recipes=recipes | {"STS-B": {"num_train_epochs": 1.5}}
    )
    found = {}
    for name in ("table7", "table8"):
        for step in plan_of(name, scale, encoders=["base"]).steps:
            if step.kind == "fine-tuning":
                found[name, step.label.split()[0]] = tuple(map(step.flag, wanted))
    assert found["table7", "WNUT-17"] == (1e-4, 3.0, 8)
    assert found["table8", "STS-B"] == (2e-4, 1.5, 32)
    assert found["table8", "WNUT-17"] == (5e-4, 5.0, 16)
    of_row = two_rows(
        'label = "BERT"', 'label = "BERT"\nfine_tuning = { num_train_epochs = 9.0 }'
    ).steps
    assert {step.flag("num_train_epochs") for step in of_row if step.kind == "fine-tuning"} == {
        9.0,
        1.0,
    }


def test_what_is_left_out_has_its_reason(two_rows):
    columns = '{ task = "CoLA", set = "test", label = "test" }, { task = "RTE" }, { task = "CoLA" }, { task = "MRPC" }'
    plan = two_rows('{ task = "STS-B" }]', f'{columns}, {{ task = "STS-B" }}]')
    assert plan.left_out == [
        "column 'test': CoLA has no test set with labels",
        "column 'RTE': --scale=smoke has neither its task nor one that stands in for it",
        "column 'MRPC': what may stand in for its task (CoLA) is that of another column",
    ]
    of_absent_task = [dataclasses.replace(plan.experiment.rows[0], first_task="SWAG")]
    with pytest.raises(
        InputError, match=r"nothing is left .*row 'BERT': --scale=smoke has no task 'SWAG'"
    ):
        plan_of(dataclasses.replace(plan.experiment, rows=of_absent_task), "smoke")
    with pytest.raises(
        InputError, match=r"table1.toml: nothing is left .*add --model=base=FOLDER; row"
    ):
        plan_of("table1", encoders=[])


def test_a_stand_in_keeps_its_own_metric_and_only_fractions_become_percentages():
    pairs, *columns = plan_of("table5", "paper").columns
    assert (pairs.metric, pairs.factor) == ("minimal_pairs", 1.0)  # it is read as percentages
    # MRPC's own metric is F1.
    assert [column.metric for column in columns] == ["eval_accuracy"] * 4 + ["f1"]
    assert [column.factor for column in columns] == [100.0] * 4 + [1.0]  # SQuAD's is in percent
    columns = plan_of("table5").columns
    assert [column.metric for column in columns] == [
        "minimal_pairs",
        "eval_spearman",
        "eval_accuracy",
        "f1",
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
