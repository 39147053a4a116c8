"""Distillation on plain text: each loss beside its formula in numpy, and that parts and kills
change nothing.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer
from official_bert.checkpoints import named_variables, tf1
from official_bert.extensions.distillation.options import (
    TEXT_TARGETS,
    PretrainingDistillationOptions,
)
from official_bert.extensions.distillation.pretraining import (
    DistillationObjective,
    MappedPretrainer,
)
from official_bert.io.errors import InputError
from official_bert.tasks.pretraining.objective import PretrainingObjective
from tests import toy, training_state
from tests.commands.pretraining_run import (
    checkpoint_values,
    first_batches,
    flags_of,
    scalars,
    write_records,
)
from tests.golden_model import losses_of, named_weights
from tests.hostile.rows import edit_json
from tests.scripts import flag_list, run_here
from tests.training.rewinding import rewind
from tests.training_state import assert_close

# Another width, other heads, other layers; four relation heads divide both widths.
SMALL = toy.BERT_CONFIG | toy.NO_DROPOUT | {"num_hidden_layers": 2}
LARGE = SMALL | {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 5,
    "intermediate_size": 40,
}
HEADS, T, WEIGHT = 4, 3.0, 0.7
FLAGS = {
    "distillation_temperature": T,
    "relation_heads": HEADS,
    "teacher_layer": 2,
    "distillation_weight": WEIGHT,
}


def with_large_weights(model, seed: int):
    """The model, whose weights are so large that attention and answers differ."""
    draws = np.random.default_rng(seed)
    for name, variable in named_weights(model):
        variable.assign(draws.normal(1.0 if name.endswith("gamma") else 0.0, 0.3, variable.shape))
    return model


def write_model(folder: pathlib.Path, config: dict, seed: int) -> str:
    model = with_large_weights(BertPretrainer(BertConfig.from_dict(config)), seed)
    folder.mkdir()
    toy.write_vocabulary(folder)
    (folder / "bert_config.json").write_text(json.dumps(config))
    tf1.write(
        str(folder / "bert_model.ckpt"),
        {name: value.numpy() for name, value in named_variables(model).items()},
    )
    return str(folder)


def make_objective(student, teacher, **flags) -> DistillationObjective:
    plain = PretrainingObjective(student, batch_size=8)
    return DistillationObjective(plain, teacher, PretrainingDistillationOptions(**FLAGS | flags))


def log_softmax(x):
    x = np.float64(x) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(taught, logits):
    log_p, log_q = log_softmax(taught), log_softmax(logits)
    return (np.exp(log_p) * (log_p - log_q)).sum(-1)


def states(model, batch) -> list[np.ndarray]:
    out = model(batch, training=False).encoded
    return [np.float64(one) for one in (out.embedding_output, *out.all_encoder_layers)]


def plain_logits(student, teacher, batch) -> float:
    ours, theirs = (
        np.array(model(batch, training=False).masked_lm_logits) for model in (student, teacher)
    )
    losses, weights = T * T * divergence(theirs / T, ours / T), batch["masked_lm_weights"].ravel()
    return (losses * weights).sum() / (weights.sum() + 1e-5)


def plain_hidden(student, teacher, batch) -> float:
    """The layers 0, 1 and 2 of two learn the layers 0, 2 and 5 of five."""
    ours, theirs = states(student, batch), states(teacher, batch)
    is_token, kernel = (
        batch["input_mask"] == 1,
        dict(named_weights(student))["distillation/hidden"].numpy(),
    )
    pairs = [(ours[0], theirs[0]), (ours[1], theirs[2]), (ours[2], theirs[5])]
    return np.mean([((one @ kernel - other)[is_token] ** 2).mean() for one, other in pairs])


def plain_relations(student, teacher, batch) -> float:
    """For each sequence, head and token by itself, without padding; the last of two layers and
    layer 2 of five.
    """
    losses = []
    for part in ("query", "key", "value"):
        vectors = []
        for model, layer in ((student, 1), (teacher, 2)):
            weights = {name: variable.numpy() for name, variable in named_weights(model)}
            scope = f"bert/encoder/layer_{layer}/attention/self/{part}"
            vectors.append(
                states(model, batch)[layer] @ weights[f"{scope}/kernel"] + weights[f"{scope}/bias"]
            )
        for row, mask in enumerate(batch["input_mask"]):
            for head in range(HEADS):
                relations = []
                for vector in vectors:
                    width = vector.shape[-1] // HEADS
                    x = vector[row, mask == 1, head * width : (head + 1) * width]
                    relations.append(x @ x.T / np.sqrt(width))
                losses.append(divergence(relations[1], relations[0]) / HEADS)
    return np.concatenate(losses).sum() / batch["input_mask"].sum()


PLAIN = {"logits": plain_logits, "hidden": plain_hidden, "attention_relations": plain_relations}


@pytest.fixture(scope="module")
def models():
    student = with_large_weights(MappedPretrainer(BertConfig.from_dict(SMALL), teacher_width=24), 1)
    return student, with_large_weights(BertPretrainer(BertConfig.from_dict(LARGE)), 2)


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    (found,) = first_batches(
        write_records(tmp_path_factory.mktemp("r") / "records", is_padded=True), 1, 8
    )
    return found


@pytest.mark.parametrize("names", [*[[name] for name in TEXT_TARGETS], list(TEXT_TARGETS)], ids=str)
def test_each_loss_is_that_of_its_formula(models, batch, names):
    student, teacher = models
    objective = make_objective(student, teacher, distillation=names)
    loss, sums = objective.loss(batch, objective.totals(batch), None)
    expected = {name: PLAIN[name](student, teacher, batch) for name in names}
    for name, value in expected.items():
        assert value > 0.1
        assert float(sums[f"{name}_loss"]) == pytest.approx(value, rel=1e-5)
    own = float(losses_of(student, batch).total)
    assert float(loss) == pytest.approx(
        WEIGHT * sum(expected.values()) + (1 - WEIGHT) * own, rel=1e-5
    )
    metrics = objective.metrics({name: 2 * float(value) for name, value in sums.items()}, 2)
    assert metrics[f"{names[0]}_loss"] == pytest.approx(expected[names[0]], rel=1e-5)
    # Replicas and accumulation cut a batch: each part's share, with the totals of the whole.
    parts = [
        {name: values[rows] for name, values in batch.items()}
        for rows in (slice(0, 3), slice(3, 8))
    ]
    totals = [objective.totals(part) for part in parts]
    whole = {name: sum(total[name] for total in totals) for name in totals[0]}
    assert sum(float(objective.loss(part, whole, None)[0]) for part in parts) == pytest.approx(
        float(loss), rel=1e-5
    )


def test_the_gradient_is_that_of_the_student_alone(models, batch):
    flags = {"distillation": list(TEXT_TARGETS), "distillation_weight": 1.0}
    objective = make_objective(*models, **flags)
    ours, theirs = (dict(named_weights(model)) for model in models)
    with tf.GradientTape() as tape:
        loss, _ = objective.loss(batch, objective.totals(batch), None)
    of_teacher, gradients = tape.gradient(loss, (theirs, ours))
    assert set(of_teacher.values()) == {None}
    # A weight of 1 leaves out the labels of next sentences.
    lacking = {name for name, gradient in gradients.items() if gradient is None}
    assert lacking == {
        name for name in ours if name.startswith(("bert/pooler", "cls/seq_relationship"))
    }


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    write_model(folder / "student", SMALL | {"num_hidden_layers": 1}, 1)
    write_model(folder / "teacher", LARGE | {"num_hidden_layers": 3}, 2)
    write_records(folder / "records.tfrecord", is_padded=True)
    return folder


def run(base, folder, **changes):
    flags = flags_of(
        base, folder, bert_config_file=None, init_checkpoint=None, model=base / "student"
    )
    flags |= {"teacher": base / "teacher", "relation_heads": HEADS, "distillation_weight": WEIGHT}
    flags |= {
        "distillation": ",".join(TEXT_TARGETS),
        "save_checkpoints_steps": 5,
        "learning_rate": 1e-3,
    }
    given = {name: value for name, value in (flags | changes).items() if value is not None}
    return run_here("run_pretraining.py", *flag_list(**given))


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """The folder of a run that trained and evaluated."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    run(base, folder, do_eval=True, max_eval_steps=0)
    return folder


def test_a_run_learns_and_has_the_numbers_of_its_parts(base, whole, tmp_path):
    losses = scalars(whole, "loss")
    assert losses[10] < 0.8 * losses[1]
    for name in TEXT_TARGETS:
        assert sorted(scalars(whole, f"{name}_loss")) == list(range(1, 11))
    run(base, tmp_path, num_accumulation_steps=2)
    assert scalars(tmp_path, "loss") == pytest.approx(losses, abs=1e-5)
    parts, expected = (checkpoint_values(folder / "model.ckpt-10") for folder in (tmp_path, whole))
    assert_close(parts, expected, weights=5e-6, first_moments=1e-6)


def test_a_run_that_was_killed_ends_as_one_that_was_not(base, whole, tmp_path):
    run(base, rewind(whole, tmp_path / "resumed", step=5))
    assert sorted(scalars(tmp_path / "resumed", "loss")) == list(range(6, 11))
    resumed, expected = (
        checkpoint_values(folder / "model.ckpt-10") for folder in (tmp_path / "resumed", whole)
    )
    training_state.assert_equal(resumed, expected)


def test_a_run_that_goes_on_with_another_teacher_is_warned_of(base, whole, tmp_path, caplog):
    """By its path it is the same one."""
    teacher, values = (
        base / "teacher" / "bert_model.ckpt",
        checkpoint_values(base / "teacher" / "bert_model.ckpt"),
    )
    same, folder = (rewind(whole, tmp_path / name, step=5) for name in ("same", "other"))
    for copy in (same, folder):
        shutil.copyfile(whole / "run.jsonl", copy / "run.jsonl")
    run(base, same)
    assert "has other weights than" not in caplog.text
    tf1.write(
        str(teacher), values | {"bert/pooler/dense/bias": values["bert/pooler/dense/bias"] + 1}
    )
    try:
        run(base, folder)
    finally:
        tf1.write(str(teacher), values)
    assert (
        f"--teacher={base}/teacher: has other weights than when the training in {folder} began"
        in caplog.text
    )


def test_nothing_of_the_teacher_is_in_the_folder(base, whole, tmp_path):
    """The map is no weight of the model."""
    plain = set(checkpoint_values(base / "student" / "bert_model.ckpt"))
    names = checkpoint_values(whole / "model.ckpt-10")
    weights = {name for name in names if not name.endswith(("adam_m", "adam_v"))}
    assert weights == plain | {"distillation/hidden", "global_step"}
    student = BertPretrainer.from_pretrained(str(whole))
    assert (
        student.config.to_dict()
        == BertConfig.from_json_file(str(base / "student" / "bert_config.json")).to_dict()
    )
    teacher_flags = ("teacher", "distillation", "distillation_weight", "relation_heads")
    evaluation = {"do_train": False, "do_eval": True, "max_eval_steps": 0} | dict.fromkeys(
        teacher_flags
    )
    again = shutil.copytree(
        whole, tmp_path / "again", ignore=shutil.ignore_patterns("eval_results.txt")
    )
    ended = run(base, again, **evaluation)
    assert (again / "eval_results.txt").read_text() == (whole / "eval_results.txt").read_text()
    assert "does not use" not in ended.stderr


@pytest.mark.long
def test_a_teacher_of_a_task_teaches_its_vectors_in_bfloat16(base, tmp_path):
    """Its checkpoint has a head of a task, and none for words."""
    teacher = shutil.copytree(base / "teacher", tmp_path / "teacher")
    values = checkpoint_values(base / "teacher" / "bert_model.ckpt")
    values = {name: value for name, value in values.items() if name.startswith("bert/")}
    tf1.write(str(teacher / "bert_model.ckpt"), values | {"output_bias": np.zeros(2, np.float32)})
    run(base, tmp_path / "whole", distillation="hidden,attention_relations", num_train_steps=2)
    run(
        base,
        tmp_path / "out",
        teacher=teacher,
        distillation="hidden,attention_relations",
        num_train_steps=2,
    )
    losses = [scalars(tmp_path / name, "loss") for name in ("whole", "out")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    hidden = {"distillation": "hidden", "relation_heads": None, "num_train_steps": 1}
    run(base, tmp_path / "half", dtype="bfloat16", **hidden)
    run(base, tmp_path / "full", **hidden)
    half, full = (scalars(tmp_path / name, "hidden_loss")[1] for name in ("half", "full"))
    assert 0 < abs(half / full - 1) < 0.05
    with pytest.raises(
        InputError, match="has no masked LM head for --distillation=logits; give hidden or"
    ):
        run(base, tmp_path / "refused", teacher=teacher)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"teacher": None},
            f"--distillation_weight={WEIGHT}: has no effect without --teacher; add that, or",
        ),
        (
            {"distillation": "logits"},
            "--relation_heads=4: has no effect without --distillation=attention_relations",
        ),
        (
            {"relation_heads": None},
            "--relation_heads=3: does not divide the widths 16 of the student and 24",
        ),
        ({"teacher_layer": 3}, "--teacher_layer=3: the teacher has the layers 0 to 2"),
    ],
)
def test_what_cannot_be_learnt_is_refused(base, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        run(base, tmp_path / "refused", **changes)
    assert not (tmp_path / "refused" / "checkpoint").exists()


def test_teacher_and_student_share_a_vocabulary_and_a_direction(base, tmp_path):
    other = shutil.copytree(base / "teacher", tmp_path / "teacher")
    toy.write_vocabulary(other, [*toy.VOCABULARY[:-2], "others", "."])
    with pytest.raises(InputError, match=r"--teacher=.*: has another vocabulary than the student"):
        run(base, tmp_path / "refused", teacher=other)
    toy.write_vocabulary(other)
    edit_json(other / "bert_config.json", attention_direction="left_to_right")
    with pytest.raises(
        InputError, match="only models that read in both directions can teach and learn"
    ):
        run(base, tmp_path / "refused", teacher=other)


def test_a_teacher_for_short_texts_is_opened_for_texts_of_the_run(base, tmp_path):
    """Its folder records no length, and it has fewer positions than the default of served models.
    What is refused afterwards needs the open model.
    """
    short = toy.make_bert_base_dir(tmp_path / "short", max_position_embeddings=64)
    with pytest.raises(InputError, match="--relation_heads=3: does not divide the widths"):
        run(base, tmp_path / "refused", teacher=short, relation_heads=3, teacher_layer=None)
    tiny = toy.make_bert_base_dir(tmp_path / "tiny", max_position_embeddings=8)
    with pytest.raises(InputError, match="was made for sequences up to 8 tokens"):
        run(base, tmp_path / "refused", teacher=tiny)
