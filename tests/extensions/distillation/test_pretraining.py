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
    variables = named_variables(model)
    weights = {name: variable.numpy() for name, variable in variables.items()}
    folder.mkdir()
    toy.write_vocabulary(folder)
    (folder / "bert_config.json").write_text(json.dumps(config))
    tf1.write(str(folder / "bert_model.ckpt"), weights)
    return str(folder)


def close(value):
    return pytest.approx(value, rel=1e-5)


def make_objective(student, teacher, **flags) -> DistillationObjective:
    plain = PretrainingObjective(student, batch_size=8)
    options = PretrainingDistillationOptions(**FLAGS | flags)
    return DistillationObjective(plain, teacher, options)


def compute_total_loss(objective: DistillationObjective, batch) -> float:
    loss, _ = objective.loss(batch, objective.totals(batch), None)
    return float(loss)


def log_softmax(x):
    maxima = x.max(-1, keepdims=True)
    x = np.float64(x) - maxima
    sums = np.exp(x).sum(-1, keepdims=True)
    return x - np.log(sums)


def kl_divergence(teacher_logits, logits):
    log_p = log_softmax(teacher_logits)
    log_q = log_softmax(logits)
    p = np.exp(log_p)
    return np.sum(p * (log_p - log_q), axis=-1)


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
    total = (losses * weights).sum()
    return total / (weights.sum() + 1e-5)


def compute_hidden_loss(student, teacher, batch) -> float:
    """The layers 0, 1 and 2 of two learn from the layers 0, 2 and 5 of five."""
    student_states = compute_hidden_states(student, batch)
    teacher_states = compute_hidden_states(teacher, batch)
    kernel = dict(named_weights(student))["distillation/hidden"].numpy()
    is_token = batch["input_mask"] == 1
    teacher_layers = {0: 0, 1: 2, 2: 5}
    losses = []
    for student_layer, teacher_layer in teacher_layers.items():
        mapped_states = student_states[student_layer] @ kernel
        differences = mapped_states - teacher_states[teacher_layer]
        squares = differences[is_token] ** 2
        losses.append(squares.mean())
    return np.mean(losses)


def compute_projection(model, layer: int, part: str, batch) -> np.ndarray:
    """Compute the queries, keys or values of a layer."""
    weights = dict(named_weights(model))
    scope = f"bert/encoder/layer_{layer}/attention/self/{part}"
    kernel = weights[f"{scope}/kernel"].numpy()
    bias = weights[f"{scope}/bias"].numpy()
    hidden_states = compute_hidden_states(model, batch)
    return hidden_states[layer] @ kernel + bias


def compute_relations(vectors: np.ndarray, head: int) -> np.ndarray:
    """Compute the scaled products of the vectors of one head, [tokens, tokens]."""
    width = vectors.shape[-1] // HEADS
    start = head * width
    head_vectors = vectors[:, start : start + width]
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
                divergences = kl_divergence(teacher_relations, student_relations)
                losses.append(divergences / HEADS)
    total = np.concatenate(losses).sum()
    num_tokens = batch["input_mask"].sum()
    return total / num_tokens


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
    assign_large_weights(student, 1)
    assign_large_weights(teacher, 2)
    return student, teacher


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("r")
    records = write_records(folder / "records", is_padded=True)
    (batch,) = first_batches(records, 1, 8)
    return batch


ONE_OR_ALL_TARGETS = [
    ["logits"],
    ["hidden"],
    ["attention_relations"],
    list(TEXT_TARGETS),
]


@pytest.mark.parametrize("names", ONE_OR_ALL_TARGETS, ids=str)
def test_each_loss_is_that_of_its_formula(models, batch, names):
    student, teacher = models
    objective = make_objective(student, teacher, distillation=names)
    totals = objective.totals(batch)
    loss, sums = objective.loss(batch, totals, None)

    expected = {}
    for name in names:
        compute_loss = PLAIN_LOSSES[name]
        value = compute_loss(student, teacher, batch)
        assert value > 0.1
        assert float(sums[f"{name}_loss"]) == close(value)
        expected[name] = value
    label_loss = float(losses_of(student, batch).total)
    distillation_loss = sum(expected.values())
    expected_loss = WEIGHT * distillation_loss + (1 - WEIGHT) * label_loss
    assert float(loss) == close(expected_loss)

    # Metrics are means of batches.
    two_batches = {name: 2 * float(value) for name, value in sums.items()}
    metrics = objective.metrics(two_batches, 2)
    name = names[0]
    assert metrics[f"{name}_loss"] == close(expected[name])


@pytest.mark.parametrize("names", ONE_OR_ALL_TARGETS, ids=str)
def test_losses_of_parts_add_up_to_that_of_the_batch(models, batch, names):
    """Replicas and accumulation split a batch. Each part has its share of the whole totals."""
    objective = make_objective(*models, distillation=names)

    first = {}
    second = {}
    for name, values in batch.items():
        first[name] = values[:3]
        second[name] = values[3:]
    second_totals = objective.totals(second)
    totals = {}
    for name, first_total in objective.totals(first).items():
        totals[name] = first_total + second_totals[name]
    first_loss, _ = objective.loss(first, totals, None)
    second_loss, _ = objective.loss(second, totals, None)

    loss = compute_total_loss(objective, batch)
    assert float(first_loss) + float(second_loss) == close(loss)


def test_only_the_student_has_gradients(models, batch):
    student, teacher = models
    objective = make_objective(
        student,
        teacher,
        distillation=list(TEXT_TARGETS),
        distillation_weight=1.0,
    )
    totals = objective.totals(batch)
    student_weights = dict(named_weights(student))
    teacher_weights = dict(named_weights(teacher))
    with tf.GradientTape() as tape:
        loss, _ = objective.loss(batch, totals, None)

    teacher_gradients, gradients = tape.gradient(
        loss,
        (teacher_weights, student_weights),
    )

    assert set(teacher_gradients.values()) == {None}
    # A weight of 1 leaves out the labels of next sentences.
    for name, gradient in gradients.items():
        is_left_out = name.startswith(("bert/pooler", "cls/seq_relationship"))
        assert (gradient is None) == is_left_out, name
    assert set(gradients) == set(student_weights)


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
        target_losses = scalars(whole, f"{name}_loss")
        assert set(target_losses) == set(range(1, 11))

    run(base, tmp_path, num_accumulation_steps=2)

    micro_batch_losses = scalars(tmp_path, "loss")
    assert micro_batch_losses == pytest.approx(losses, abs=1e-5)
    parts = checkpoint_values(tmp_path / "model.ckpt-10")
    expected = checkpoint_values(whole / "model.ckpt-10")
    assert_close(parts, expected, weights=5e-6, first_moments=1e-6)


def test_a_resumed_run_ends_as_an_uninterrupted_one(base, whole, tmp_path):
    resumed_dir = rewind(whole, tmp_path / "resumed", step=5)
    run(base, resumed_dir)
    losses = scalars(resumed_dir, "loss")
    assert set(losses) == set(range(6, 11))
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
    same_dir = rewind_with_log(whole, tmp_path / "same")
    run(base, same_dir)
    assert "has other weights than" not in caplog.text

    folder = rewind_with_log(whole, tmp_path / "other")
    name = "bert/pooler/dense/bias"
    other_bias = weights[name] + 1
    tf1.write(str(teacher), weights | {name: other_bias})
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
    results = (again / "eval_results.txt").read_text()
    expected = (whole / "eval_results.txt").read_text()
    assert results == expected
    assert "does not use" not in ended.stderr


@pytest.mark.long
def test_students_learn_from_a_task_model_in_bfloat16(base, tmp_path):
    """Its checkpoint has a head of a task, and none for words."""
    teacher = shutil.copytree(base / "teacher", tmp_path / "teacher")
    checkpoint = str(teacher / "bert_model.ckpt")
    values = checkpoint_values(checkpoint)
    task_weights = {name: value for name, value in values.items() if name.startswith("bert/")}
    task_weights["output_bias"] = np.zeros(2, np.float32)
    tf1.write(checkpoint, task_weights)

    run(
        base,
        tmp_path / "whole",
        distillation="hidden,attention_relations",
        num_train_steps=2,
    )
    run(
        base,
        tmp_path / "task",
        teacher=teacher,
        distillation="hidden,attention_relations",
        num_train_steps=2,
    )
    whole_losses = scalars(tmp_path / "whole", "loss")
    task_losses = scalars(tmp_path / "task", "loss")
    assert whole_losses == pytest.approx(task_losses, rel=1e-6)

    hidden_only = {
        "distillation": "hidden",
        "relation_heads": None,
        "num_train_steps": 1,
    }
    run(base, tmp_path / "half", dtype="bfloat16", **hidden_only)
    run(base, tmp_path / "full", **hidden_only)
    half_losses = scalars(tmp_path / "half", "hidden_loss")
    full_losses = scalars(tmp_path / "full", "hidden_loss")
    assert 0 < abs(half_losses[1] / full_losses[1] - 1) < 0.05

    message = "has no masked LM head for --distillation=logits; give hidden or"
    with pytest.raises(InputError, match=message):
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
    vocabulary = list(toy.VOCABULARY)
    vocabulary[-2] = "others"
    toy.write_vocabulary(other, vocabulary)
    message = r"--teacher=.*: has another vocabulary than the student"
    with pytest.raises(InputError, match=message):
        run(base, tmp_path / "refused", teacher=other)

    toy.write_vocabulary(other)
    edit_json(other / "bert_config.json", attention_direction="left_to_right")
    message = "only models that read in both directions can teach and learn"
    with pytest.raises(InputError, match=message):
        run(base, tmp_path / "refused", teacher=other)


def test_a_teacher_for_short_texts_is_opened_for_texts_of_the_run(base, tmp_path):
    """Its folder records no length, and it has fewer positions than the default of served models.
    What is refused afterwards needs the open model.
    """
    short = toy.make_bert_base_dir(tmp_path / "short", max_position_embeddings=64)
    with pytest.raises(InputError, match="--relation_heads=3: does not divide the widths"):
        run(
            base,
            tmp_path / "refused",
            teacher=short,
            relation_heads=3,
            teacher_layer=None,
        )

    tiny = toy.make_bert_base_dir(tmp_path / "tiny", max_position_embeddings=8)
    with pytest.raises(InputError, match="was made for sequences up to 8 tokens"):
        run(base, tmp_path / "refused", teacher=tiny)
