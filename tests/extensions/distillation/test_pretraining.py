"""Tests of distillation on plain text.

Each loss is compared with its formula in numpy. Micro-batches and kills change nothing.
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
HEADS = 4
TEMPERATURE = 3.0
WEIGHT = 0.7
FLAGS = {
    "distillation_temperature": TEMPERATURE,
    "relation_heads": HEADS,
    "teacher_layer": 2,
    "distillation_weight": WEIGHT,
}


def assign_large_weights(model, seed: int):
    """Assign weights that are so large that attention and outputs differ; return the model."""
    generator = np.random.default_rng(seed)
    for name, variable in named_weights(model):
        mean = 1.0 if name.endswith("gamma") else 0.0
        variable.assign(generator.normal(mean, 0.3, variable.shape))
    return model


def write_model(folder: pathlib.Path, config: dict, seed: int) -> str:
    model = assign_large_weights(BertPretrainer(BertConfig.from_dict(config)), seed)
    weights = {name: variable.numpy() for name, variable in named_variables(model).items()}
    folder.mkdir()
    toy.write_vocabulary(folder)
    (folder / "bert_config.json").write_text(json.dumps(config))
    tf1.write(str(folder / "bert_model.ckpt"), weights)
    return str(folder)


def make_objective(student, teacher, **flags) -> DistillationObjective:
    plain = PretrainingObjective(student, batch_size=8)
    return DistillationObjective(plain, teacher, PretrainingDistillationOptions(**FLAGS | flags))


def log_softmax(x):
    x = np.float64(x) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def kl_divergence(teacher_logits, logits):
    log_p = log_softmax(teacher_logits)
    log_q = log_softmax(logits)
    return (np.exp(log_p) * (log_p - log_q)).sum(-1)


def compute_hidden_states(model, batch) -> list[np.ndarray]:
    """Compute the output of the embeddings and those of all layers."""
    encoded = model(batch, training=False).encoded
    outputs = [encoded.embedding_output, *encoded.all_encoder_layers]
    return [np.float64(output) for output in outputs]


def compute_mlm_logits(model, batch) -> np.ndarray:
    return np.array(model(batch, training=False).masked_lm_logits)


def compute_logits_loss(student, teacher, batch) -> float:
    student_logits = compute_mlm_logits(student, batch) / TEMPERATURE
    teacher_logits = compute_mlm_logits(teacher, batch) / TEMPERATURE
    losses = TEMPERATURE**2 * kl_divergence(teacher_logits, student_logits)
    weights = batch["masked_lm_weights"].ravel()
    return (losses * weights).sum() / (weights.sum() + 1e-5)


def compute_hidden_loss(student, teacher, batch) -> float:
    """The layers 0, 1 and 2 of two learn from the layers 0, 2 and 5 of five."""
    student_states = compute_hidden_states(student, batch)
    teacher_states = compute_hidden_states(teacher, batch)
    kernel = dict(named_weights(student))["distillation/hidden"].numpy()
    is_token = batch["input_mask"] == 1
    losses = []
    for student_layer, teacher_layer in ((0, 0), (1, 2), (2, 5)):
        differences = student_states[student_layer] @ kernel - teacher_states[teacher_layer]
        losses.append((differences[is_token] ** 2).mean())
    return np.mean(losses)


def compute_projection(model, layer: int, part: str, batch) -> np.ndarray:
    """Compute the queries, keys or values of a layer."""
    weights = dict(named_weights(model))
    scope = f"bert/encoder/layer_{layer}/attention/self/{part}"
    kernel = weights[f"{scope}/kernel"].numpy()
    bias = weights[f"{scope}/bias"].numpy()
    return compute_hidden_states(model, batch)[layer] @ kernel + bias


def compute_relations(vectors: np.ndarray, head: int) -> np.ndarray:
    """Compute the scaled products of the vectors of one head, [tokens, tokens]."""
    width = vectors.shape[-1] // HEADS
    head_vectors = vectors[:, head * width : (head + 1) * width]
    return head_vectors @ head_vectors.T / np.sqrt(width)


def compute_relations_loss(student, teacher, batch) -> float:
    """Compare each sequence, head and token by itself, without padding.

    The last layer of two learns from layer 2 of five.
    """
    losses = []
    for part in ("query", "key", "value"):
        student_vectors = compute_projection(student, 1, part, batch)
        teacher_vectors = compute_projection(teacher, 2, part, batch)
        for row, mask in enumerate(batch["input_mask"]):
            is_token = mask == 1
            for head in range(HEADS):
                student_relations = compute_relations(student_vectors[row, is_token], head)
                teacher_relations = compute_relations(teacher_vectors[row, is_token], head)
                losses.append(kl_divergence(teacher_relations, student_relations) / HEADS)
    return np.concatenate(losses).sum() / batch["input_mask"].sum()


PLAIN_LOSSES = {
    "logits": compute_logits_loss,
    "hidden": compute_hidden_loss,
    "attention_relations": compute_relations_loss,
}


@pytest.fixture(scope="module")
def models():
    """A student and its teacher."""
    student = MappedPretrainer(BertConfig.from_dict(SMALL), teacher_width=24)
    teacher = BertPretrainer(BertConfig.from_dict(LARGE))
    return assign_large_weights(student, 1), assign_large_weights(teacher, 2)


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    records = write_records(tmp_path_factory.mktemp("r") / "records", is_padded=True)
    (batch,) = first_batches(records, 1, 8)
    return batch


ONE_OR_ALL_TARGETS = [*[[name] for name in TEXT_TARGETS], list(TEXT_TARGETS)]


@pytest.mark.parametrize("names", ONE_OR_ALL_TARGETS, ids=str)
def test_each_loss_is_that_of_its_formula(models, batch, names):
    student, teacher = models
    objective = make_objective(student, teacher, distillation=names)
    loss, sums = objective.loss(batch, objective.totals(batch), None)

    expected = {name: PLAIN_LOSSES[name](student, teacher, batch) for name in names}
    for name, value in expected.items():
        assert value > 0.1
        assert float(sums[f"{name}_loss"]) == pytest.approx(value, rel=1e-5)
    label_loss = float(losses_of(student, batch).total)
    expected_loss = WEIGHT * sum(expected.values()) + (1 - WEIGHT) * label_loss
    assert float(loss) == pytest.approx(expected_loss, rel=1e-5)

    # Metrics are means of batches.
    two_batches = {name: 2 * float(value) for name, value in sums.items()}
    metrics = objective.metrics(two_batches, 2)
    assert metrics[f"{names[0]}_loss"] == pytest.approx(expected[names[0]], rel=1e-5)


@pytest.mark.parametrize("names", ONE_OR_ALL_TARGETS, ids=str)
def test_losses_of_parts_add_up_to_that_of_the_batch(models, batch, names):
    """Replicas and accumulation split a batch. Each part has its share of the whole totals."""
    objective = make_objective(*models, distillation=names)
    loss, _ = objective.loss(batch, objective.totals(batch), None)

    first = {name: values[:3] for name, values in batch.items()}
    second = {name: values[3:] for name, values in batch.items()}
    first_totals = objective.totals(first)
    second_totals = objective.totals(second)
    totals = {name: first_totals[name] + second_totals[name] for name in first_totals}
    first_loss, _ = objective.loss(first, totals, None)
    second_loss, _ = objective.loss(second, totals, None)

    assert float(first_loss) + float(second_loss) == pytest.approx(float(loss), rel=1e-5)


def test_only_the_student_has_gradients(models, batch):
    flags = {"distillation": list(TEXT_TARGETS), "distillation_weight": 1.0}
    objective = make_objective(*models, **flags)
    student_weights, teacher_weights = (dict(named_weights(model)) for model in models)
    with tf.GradientTape() as tape:
        loss, _ = objective.loss(batch, objective.totals(batch), None)

    teacher_gradients, gradients = tape.gradient(loss, (teacher_weights, student_weights))

    assert set(teacher_gradients.values()) == {None}
    # A weight of 1 leaves out the labels of next sentences.
    next_sentence_scopes = ("bert/pooler", "cls/seq_relationship")
    expected = {name for name in student_weights if name.startswith(next_sentence_scopes)}
    assert {name for name, gradient in gradients.items() if gradient is None} == expected


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    write_model(folder / "student", SMALL | {"num_hidden_layers": 1}, 1)
    write_model(folder / "teacher", LARGE | {"num_hidden_layers": 3}, 2)
    write_records(folder / "records.tfrecord", is_padded=True)
    return folder


def run(base, folder, **changes):
    flags = flags_of(
        base,
        folder,
        bert_config_file=None,
        init_checkpoint=None,
        model=base / "student",
    )
    flags |= {
        "teacher": base / "teacher",
        "relation_heads": HEADS,
        "distillation_weight": WEIGHT,
        "distillation": ",".join(TEXT_TARGETS),
        "save_checkpoints_steps": 5,
        "learning_rate": 1e-3,
    }
    flags |= changes
    set_flags = {name: value for name, value in flags.items() if value is not None}
    return run_here("run_pretraining.py", *flag_list(**set_flags))


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """The folder of a run that trained and evaluated."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    run(base, folder, do_eval=True, max_eval_steps=0)
    return folder


def test_micro_batches_have_the_numbers_of_whole_batches(base, whole, tmp_path):
    losses = scalars(whole, "loss")
    assert losses[10] < 0.8 * losses[1], "it learns"
    for name in TEXT_TARGETS:
        assert sorted(scalars(whole, f"{name}_loss")) == list(range(1, 11))

    run(base, tmp_path, num_accumulation_steps=2)

    assert scalars(tmp_path, "loss") == pytest.approx(losses, abs=1e-5)
    parts = checkpoint_values(tmp_path / "model.ckpt-10")
    expected = checkpoint_values(whole / "model.ckpt-10")
    assert_close(parts, expected, weights=5e-6, first_moments=1e-6)


def test_a_resumed_run_ends_as_an_uninterrupted_one(base, whole, tmp_path):
    resumed_dir = rewind(whole, tmp_path / "resumed", step=5)
    run(base, resumed_dir)
    assert sorted(scalars(resumed_dir, "loss")) == list(range(6, 11))
    resumed = checkpoint_values(resumed_dir / "model.ckpt-10")
    expected = checkpoint_values(whole / "model.ckpt-10")
    training_state.assert_equal(resumed, expected)


def rewind_with_log(whole, folder):
    """Copy a run as it was at step 5, with its log, which records the weights of the teacher."""
    copy = rewind(whole, folder, step=5)
    shutil.copyfile(whole / "run.jsonl", copy / "run.jsonl")
    return copy


def test_resuming_with_another_teacher_warns(base, whole, tmp_path, caplog):
    """The path of the teacher is the same one, its weights are not."""
    teacher = base / "teacher" / "bert_model.ckpt"
    weights = checkpoint_values(teacher)
    run(base, rewind_with_log(whole, tmp_path / "same"))
    assert "has other weights than" not in caplog.text

    folder = rewind_with_log(whole, tmp_path / "other")
    name = "bert/pooler/dense/bias"
    tf1.write(str(teacher), weights | {name: weights[name] + 1})
    try:
        run(base, folder)
    finally:
        tf1.write(str(teacher), weights)

    teacher_flag = f"--teacher={base}/teacher"
    warning = f"{teacher_flag}: has other weights than when the training in {folder} began"
    assert warning in caplog.text


def test_the_output_folder_has_nothing_of_the_teacher(base, whole):
    """The map of the hidden states is no weight of the model."""
    student_weights = set(checkpoint_values(base / "student" / "bert_model.ckpt"))
    names = checkpoint_values(whole / "model.ckpt-10")
    weights = {name for name in names if not name.endswith(("adam_m", "adam_v"))}
    assert weights == student_weights | {"distillation/hidden", "global_step"}

    student = BertPretrainer.from_pretrained(str(whole))
    config = BertConfig.from_json_file(str(base / "student" / "bert_config.json"))
    assert student.config.to_dict() == config.to_dict()


def test_evaluation_needs_no_flag_of_distillation(base, whole, tmp_path):
    no_results = shutil.ignore_patterns("eval_results.txt")
    again = shutil.copytree(whole, tmp_path / "again", ignore=no_results)
    ended = run(
        base,
        again,
        do_train=False,
        do_eval=True,
        max_eval_steps=0,
        teacher=None,
        distillation=None,
        distillation_weight=None,
        relation_heads=None,
    )
    assert (again / "eval_results.txt").read_text() == (whole / "eval_results.txt").read_text()
    assert "does not use" not in ended.stderr


@pytest.mark.long
def test_students_learn_from_a_task_model_in_bfloat16(base, tmp_path):
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
        pytest.param(
            {"teacher": None},
            f"--distillation_weight={WEIGHT}: has no effect without --teacher; add that, or",
            id="no teacher",
        ),
        pytest.param(
            {"distillation": "logits"},
            "--relation_heads=4: has no effect without --distillation=attention_relations",
            id="relation heads without relations",
        ),
        pytest.param(
            {"relation_heads": None},
            "--relation_heads=3: does not divide the widths 16 of the student and 24",
            id="relation heads that do not divide a width",
        ),
        pytest.param(
            {"teacher_layer": 3},
            "--teacher_layer=3: the teacher has the layers 0 to 2",
            id="absent layer",
        ),
    ],
)
def test_impossible_distillation_is_refused(base, tmp_path, changes, message):
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
