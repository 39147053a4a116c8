"""The candidates of benchmarks/gpu_variants.py compared with the parts of the model that they
replace, the kernels of the GPU lab without a GPU, and which rows benchmarks/gpu_lab.py measures.
"""

import ctypes
import importlib
import importlib.util
import json
import re
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import cudnn_attention, gpu_variants, kernel_attention, kernel_profile
from official_bert import BertConfig, BertPretrainer
from official_bert.modeling import dropout_masks, layers, losses
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training.starting_point import seed_initial_weights
from tests import toy
from tests.scripts import run_interpreter
from tests.shared import ROOT

SEED = (3, -7)
NUM_ROWS = 128
WIDTH = 40
RANDOM = np.random.default_rng(1)


def draw(*shape: int) -> tf.Tensor:
    return tf.constant(RANDOM.standard_normal(shape, np.float32))


def draw_keep(*shape: int) -> tf.Tensor:
    is_kept = RANDOM.random(shape) > 0.3
    return tf.constant(is_kept)


# --- Dropout by a hash


NUM_WORDS = 2**32  # of 32 bits


def mix(bits):
    """Mixes words of 32 bits, which stand in 64 bits."""
    bits = bits ^ (bits >> 16)
    bits = bits * 0x7FEB352D % NUM_WORDS
    bits = bits ^ (bits >> 15)
    bits = bits * 0x846CA68B % NUM_WORDS
    return bits ^ (bits >> 16)


def hash_with_numpy(size: int, rate: float, seed: tuple[int, int], index: int) -> np.ndarray:
    """The mask that a dropout of this index keeps, by the steps of gpu_variants.hash_mask."""
    first_seed, second_seed = seed
    first_word = np.uint64(first_seed % NUM_WORDS)
    second_word = np.uint64(second_seed % NUM_WORDS)
    offset = np.uint64(index * 0x9E3779B1 % NUM_WORDS)
    mixed = mix((first_word + offset) % NUM_WORDS)
    first_key = mix(mixed ^ second_word)
    summed = mixed + second_word + 0x85EBCA6B
    second_key = mix(summed % NUM_WORDS)
    positions = np.arange(size, dtype=np.uint64)
    bits = mix(positions ^ first_key)
    bits = bits ^ second_key
    bits = bits * 0x9E3779B1 % NUM_WORDS
    threshold = round(rate * NUM_WORDS)
    return bits >= threshold


@pytest.mark.parametrize("is_compiled", [False, True])
def test_hash_mask_equals_numpy(is_compiled):
    hash_mask = tf.function(gpu_variants.hash_mask, jit_compile=is_compiled, autograph=False)
    mask = hash_mask(tf.zeros([7, 3, 5]), 0.3, tf.constant(SEED), 4)
    expected = hash_with_numpy(7 * 3 * 5, 0.3, SEED, 4)
    np.testing.assert_array_equal(mask.numpy().ravel(), expected)


def binomial_deviation(probability: float, size: int) -> float:
    """The standard deviation of the mean of independent values that are true so often."""
    variance = probability * (1 - probability)
    return (variance / size) ** 0.5


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_hash_masks_have_the_rate_and_are_independent(rate):
    """Masks of other dropouts, steps, replicas and rows agree as often as independent ones do."""
    size = 1 << 20
    mask = hash_with_numpy(size, rate, SEED, 4)
    pairs = mask.reshape(-1, 2)
    swapped_pairs = pairs[:, ::-1]
    other_masks = {
        "dropout": hash_with_numpy(size, rate, SEED, 5),
        "step": hash_with_numpy(size, rate, (4, -7), 4),
        "replica": hash_with_numpy(size, rate, (3, -6), 4),
        "next position": np.roll(mask, 1),
        "next row": np.roll(mask, 128),
        "opposite bit": swapped_pairs.ravel(),
    }
    rate_error = abs(mask.mean() - (1 - rate))
    assert rate_error < 5 * binomial_deviation(rate, size)
    expected_agreement = rate**2 + (1 - rate) ** 2
    deviation = binomial_deviation(expected_agreement, size)
    for name, other_mask in other_masks.items():
        agreement = (mask == other_mask).mean()
        # The last case counts each pair twice, so its deviation is larger.
        assert abs(agreement - expected_agreement) < 8 * deviation, name


# --- Candidates and the model


def plain_gelu(product, bias):
    return layers.gelu(product + bias)


def plain_residual_norm(product, residual, bias, gamma, beta, keep, rate):
    with_bias = product + bias
    dropped = tf.where(keep, with_bias / (1 - rate), 0.0)
    summed = dropped + residual
    mean, variance = tf.nn.moments(summed, axes=[-1], keepdims=True)
    scale = tf.math.rsqrt(variance + layers.LAYER_NORM_EPSILON)
    return (summed - mean) * scale * gamma + beta


def plain_weights(scores, bias, keep, rate):
    probabilities = tf.nn.softmax(scores + bias)
    return tf.where(keep, probabilities / (1 - rate), 0.0)


class Case(NamedTuple):
    """A candidate, its plain function, and their arguments: those with a gradient, and others."""

    function: Callable
    plain: Callable
    inputs: list
    others: list


SCORES = draw(2, 3, 4, WIDTH)
MASK_BIAS = RANDOM.choice([0.0, -10000.0], (2, 1, 1, WIDTH))
SCORES_SETTINGS = [
    tf.constant(MASK_BIAS, tf.float32),
    draw_keep(2, 3, 4, WIDTH),
    0.3,
]
NORM_INPUTS = [
    draw(NUM_ROWS, WIDTH),
    draw(NUM_ROWS, WIDTH),
    draw(WIDTH),
    draw(WIDTH),
    draw(WIDTH),
]
CLASSES = RANDOM.integers(0, WIDTH, NUM_ROWS)
LABELS = tf.constant(CLASSES, tf.int32)
CASES = {
    "gelu": Case(
        gpu_variants.bias_gelu,
        plain_gelu,
        inputs=[draw(NUM_ROWS, WIDTH), draw(WIDTH)],
        others=[],
    ),
    "norm": Case(
        gpu_variants.residual_norm,
        plain_residual_norm,
        inputs=NORM_INPUTS,
        others=[draw_keep(NUM_ROWS, WIDTH), 0.3],
    ),
    "probabilities": Case(
        gpu_variants.weigh_probabilities,
        plain_weights,
        inputs=[SCORES],
        others=SCORES_SETTINGS,
    ),
    "softmax": Case(
        gpu_variants.weigh_scores,
        plain_weights,
        inputs=[SCORES],
        others=SCORES_SETTINGS,
    ),
    "loss": Case(
        gpu_variants.cross_entropy,
        losses.cross_entropy,
        inputs=[draw(NUM_ROWS, WIDTH)],
        others=[LABELS],
    ),
}
BARRIER_CASES = ("gelu", "norm", "softmax")
SUM_CASES = ("gelu", "norm")


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *[(name, "") for name in CASES],
        *[(name, "barrier") for name in BARRIER_CASES],
        *[(name, "sums") for name in SUM_CASES],
    ],
)
def test_values_and_gradients_equal_the_plain_ones(name, setting):
    case = CASES[name]

    def differentiate(function):
        @tf.function(jit_compile=True, autograph=False)
        def run():
            with tf.GradientTape() as tape:
                tape.watch(case.inputs)
                output = function(*case.inputs, *case.others)
                loss = tf.reduce_sum(output * tf.cos(output))
            gradients = tape.gradient(loss, case.inputs)
            return output, *gradients

        return run()

    with gpu_variants.apply_candidates(setting.split()):
        results = differentiate(case.function)
    plain_results = differentiate(case.plain)
    for result, expected in zip(results, plain_results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


def draw_batch(config: BertConfig) -> dict[str, np.ndarray]:
    """A batch of four examples: of 16, 9, 16 and no tokens, and of 3, 2, 1 and 3 predictions."""
    num_tokens = np.int32([16, 9, 16, 0])
    num_predictions = np.int32([3, 2, 1, 3])
    input_ids = RANDOM.integers(0, config.vocab_size, (4, 16), np.int32)
    segment_ids = RANDOM.integers(0, 2, (4, 16), np.int32)
    masked_lm_ids = RANDOM.integers(0, config.vocab_size, (4, 3), np.int32)
    is_token = np.arange(16) < num_tokens[:, np.newaxis]
    is_prediction = np.arange(3) < num_predictions[:, np.newaxis]
    return {
        "input_ids": input_ids,
        "input_mask": is_token.astype(np.int32),
        "segment_ids": segment_ids,
        "masked_lm_positions": np.int32([[1, 3, 8]] * 4),
        "masked_lm_ids": masked_lm_ids,
        "masked_lm_weights": is_prediction.astype(np.float32),
        "next_sentence_labels": np.int32([[0], [1], [1], [0]]),
    }


@pytest.mark.parametrize(
    "names",
    [
        ["hash"],
        ["norm", "gelu", "softmax", "loss", "qkv", "padded"],
        ["residual", "qkv"],
    ],
)
def test_a_model_with_candidates_has_the_plain_gradients(names):
    config = BertConfig.from_dict(toy.BERT_CONFIG | toy.NO_DROPOUT)
    batch = draw_batch(config)

    def differentiate():
        seed_initial_weights(5)
        pretrainer = BertPretrainer(config)
        objective = PretrainingObjective(pretrainer, len(batch["input_ids"]))
        totals = objective.totals(batch)
        with tf.GradientTape() as tape:
            loss, _ = objective.loss(batch, totals, tf.constant(SEED))
        weights = [weight.value for weight in pretrainer.trainable_weights]
        gradients = tape.gradient(loss, weights)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    with gpu_variants.apply_candidates(names):
        loss, gradients = differentiate()
    plain_loss, plain_gradients = differentiate()
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-6)
    for gradient, plain_gradient in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(gradient, plain_gradient, rtol=1e-4, atol=2e-6)


def test_the_model_is_restored():
    original = dropout_masks.dropout_mask
    with gpu_variants.apply_candidates(["hash"]):
        assert dropout_masks.dropout_mask is gpu_variants.hash_mask
    assert dropout_masks.dropout_mask is original


def test_an_unknown_candidate_is_refused():
    context = gpu_variants.apply_candidates(["hash", "odd"])
    with pytest.raises(ValueError, match=r"no candidates: odd; use some of hash, "), context:
        pass


# --- cuDNN's kernels


HAS_GPU = bool(tf.config.list_physical_devices("GPU"))


@pytest.mark.skipif(HAS_GPU, reason="a GPU runs the call")
@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("call", ["module", "custom call", "module with a bias"])
def test_the_call_of_cudnn_reaches_xla(rate, call):
    """Without a GPU, XLA knows no such kernel; its checks of shapes and types precede the error."""
    pytest.importorskip(
        "tensorflow.compiler.tf2xla.ops.gen_xla_ops", reason="TensorFlow has no calls of XLA"
    )
    query = tf.cast(draw(2, 64, 3, 64), tf.bfloat16)
    key = tf.cast(draw(2, 64, 3, 64), tf.bfloat16)
    value = tf.cast(draw(2, 64, 3, 64), tf.bfloat16)
    has_bias = call == "module with a bias"
    if has_bias:
        mask = {"bias": tf.zeros([2, 1, 64, 64], tf.bfloat16)}
    else:
        mask = {"lengths": tf.constant([64, 5])}

    @tf.function(jit_compile=True, autograph=False)
    def differentiate():
        with tf.GradientTape() as tape:
            tape.watch(query)
            context = cudnn_attention.attend(
                query,
                key,
                value,
                rate=rate,
                seed=1,
                is_in_module=call != "custom call",
                **mask,
            )
        assert context.shape == query.shape
        gradient = tape.gradient(context, query)
        assert gradient.shape == query.shape
        return gradient

    scores_part = "ScaleBias" if has_bias else ""
    dropout_part = "Dropout" if rate else ""
    name = f"fmha{scores_part}Softmax{dropout_part}"
    with pytest.raises(tf.errors.NotFoundError, match=rf"__cudnn\${name}"):
        differentiate()


# --- The kernels of this project

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed, which only PyTorch for CUDA brings with it",
)
KERNEL = {
    "name": "forward",
    "length": 128,
    "num_heads": 3,
    "rate": 0.1,
    "num_blocks": 2,
    "num_threads": 256,
    "shared_bytes": 1024,
    "num_parameters": 8,
    "ptx": 'first\n\t"quoted" \\ {second}\n',
}


def test_the_first_kernel_that_fits_is_chosen():
    kernels = [
        KERNEL | {"length": 512},
        KERNEL,
        KERNEL | {"num_threads": 128},
    ]
    chosen = kernel_attention.choose_kernels(kernels, length=128, num_heads=3, rate=0.1)
    assert chosen == {"forward": KERNEL}
    with pytest.raises(ValueError, match=r"no kernel for length 128, 4 heads and rate 0.1"):
        kernel_attention.choose_kernels(kernels, length=128, num_heads=4, rate=0.1)


def test_a_kernel_is_quoted_for_mlir():
    text = kernel_attention.format_config(KERNEL, batch_size=5)
    (quoted,) = re.findall(r'kernel_data = "([^"]*)"', text)
    assert "\n" not in text
    unquoted = re.sub(r"\\(..)", lambda match: chr(int(match[1], 16)), quoted)
    assert unquoted == KERNEL["ptx"]
    assert "grid_x = 15 : i32, grid_y = 2 : i32, grid_z = 1 : i32, block_x = 256 : i32" in text


@needs_triton
@pytest.mark.needs_extra("torch")
@pytest.mark.parametrize(("length", "backward"), [(128, "backward_one"), (256, "backward")])
def test_the_kernels_equal_pytorch(length, backward):
    finished = run_interpreter(
        "benchmarks/attention_kernels.py",
        "--first_block_only",
        f"--check={length}",
        TRITON_INTERPRET="1",
    )
    errors = dict(re.findall(r"^(\w+) .*: relative error (\S+)$", finished.stdout, re.MULTILINE))
    assert set(errors) == {"forward", backward}
    assert all(float(error) < 5e-6 for error in errors.values())


COMPILE = """
import json
from benchmarks.attention_kernels import Problem, compile_kernel, forward
print(json.dumps(compile_kernel(forward, (8, 128, 64), Problem(512, 12, 0.1))))
"""


@needs_triton
def test_a_compiled_kernel_has_what_its_call_needs(tmp_path):
    finished = run_interpreter("-c", COMPILE, TRITON_CACHE_DIR=str(tmp_path))
    kernel = json.loads(finished.stdout)
    for name, value in KERNEL.items():
        assert type(kernel[name]) is type(value), name
    # Four inputs, two results, and Triton's scratch memory.
    assert kernel["num_parameters"] == 4 + 2 + kernel_attention._NUM_SCRATCH
    assert kernel["num_blocks"] == 4
    assert ".entry forward(" in kernel["ptx"]
    assert "//" not in kernel["ptx"]


# --- The profile and the rows


def test_the_record_of_a_kernel():
    """The offsets are those of CUpti_ActivityKernel10: start 16, end 24, name 104."""
    name = ctypes.create_string_buffer(b"fusion_7")
    name_address = ctypes.addressof(name)
    record = struct.pack("<I12xQQ72xQ", 10, 1000, 1250, name_address)
    memory = ctypes.create_string_buffer(record, len(record))
    record_address = ctypes.addressof(memory)
    assert kernel_profile.read_record(record_address) == ("fusion_7", 250)


def test_kernels_are_counted_by_class():
    rows = [
        ["loop_add_fusion_3", 1500.0, 1],
        ["nvjet_hsh_128x256", 2000.0, 4],
        ["gemm_fusion_dot_7", 500.0, 1],
    ]
    expected = {"matrix product": 2.5, "other": 1.5}
    assert kernel_profile.milliseconds_by_class(rows) == expected


@pytest.fixture
def gpu_lab(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("gpu_lab")


def test_finished_rows_are_not_measured_again(tmp_path, monkeypatch, gpu_lab):
    output = tmp_path / "rows.jsonl"
    monkeypatch.setattr("sys.argv", ["gpu_lab.py", "--stage", "deep", f"--output={output}"])
    flags = gpu_lab.parse_flags()
    (batch,) = gpu_lab.choose_batches(flags)
    first, second, *_ = batch
    measured = json.dumps(first | {"milliseconds": 1.0})
    failed = json.dumps(second | {"error": "no time left"})
    output.write_text(f"{measured}\n{failed}\n", encoding="utf-8")
    (remaining,) = gpu_lab.choose_batches(flags)
    assert remaining == batch[1:]


class FakeProcess:
    """A process whose reports are known, and which writes down when it continues."""

    def __init__(self, name: str, reports: list[str], events: list[str]):
        self.row = {"variant": name}
        self._reports = [*reports, ""]
        self._events = events

    def next_report(self, deadline: float) -> str:
        return self._reports.pop(0)

    def resume(self):
        self._events.append(self.row["variant"])

    def stop(self) -> str:
        return "its log"


def test_a_batch_measures_one_after_the_other_and_keeps_errors(gpu_lab):
    events = []
    rows = []
    processes = [
        FakeProcess("first", ["built", "compiled", '{"milliseconds": 1}'], events),
        FakeProcess("not built", [], events),
        FakeProcess("not compiled", ["built"], events),
        FakeProcess("last", ["built", "compiled", '{"milliseconds": 2}'], events),
    ]

    def start_next() -> list:
        events.append("next batch")
        return ["next process"]

    deadline = time.monotonic() + 60
    next_processes = gpu_lab.run_batch(processes, start_next, deadline, rows.append)
    assert next_processes == ["next process"]
    assert events == [
        *("first", "not built", "not compiled", "last"),
        "next batch",
        *("first", "last"),
    ]
    assert rows == [
        {"milliseconds": 1},
        {"milliseconds": 2},
        {"variant": "not built", "error": "its log"},
        {"variant": "not compiled", "error": "its log"},
    ]


def test_the_stages_try_every_candidate(gpu_lab):
    variants = set()
    for batches in gpu_lab.STAGES.values():
        for batch in batches:
            variants.update(row["variant"] for row in batch)
    variants -= {gpu_lab.PLAIN, gpu_lab.PEER}
    names = set(" ".join(variants).split())
    assert names == set(gpu_variants.CANDIDATES)
