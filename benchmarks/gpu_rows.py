"""What a row of gpu_lab.py measures: a training step, or one attention."""

import contextlib
import functools
import itertools
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import training_step
from gpu_step import PEERS, SHAPES, device_name, peer_step
from kernel_profile import KernelProfile, milliseconds_by_class

ATTENTION = "attention"  # the size of a row that measures one attention instead of a step
PLAIN = "plain"
FIRST_ROUNDS = 5  # not measured
MEASURED_ROUNDS = 20
PROFILED_ROUNDS = 5
NUM_COMPARED_MASKS = 3
NUM_PROFILED_KERNELS = 150  # the longest ones, which a row lists
NUM_HEADS = 12
HEAD_SIZE = 64
DROPOUT_INDEX = 3  # the number of the dropout in an attention
DROPOUT_RATE = 0.1
TOY_SIZES = {
    "hidden_size": 128,
    "num_attention_heads": 2,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
}
TOY_LENGTH = 32
TOY_BATCH_SIZE = 4
TOY_PREDICTIONS = 4
TOY_VOCAB = 1003
_candidates = contextlib.ExitStack()  # applied until the process ends


class Measurable(NamedTuple):
    """What a row measures.

    Attributes:
        step: a function that makes one step and returns its loss, or a number of its result.
        peak_bytes: a function that returns the peak of memory.
        checks: what was compared before, for the row.
    """

    step: Callable[[], float]
    peak_bytes: Callable[[], float]
    checks: dict


def measure(row: dict, is_toy: bool, wait: Callable[[str], None]) -> dict:
    """Measures one row.

    Args:
        row: the description of the row.
        is_toy: whether to run at a tiny size on the CPU, to try the script.
        wait: a function that reports what is done and returns when the process may continue.

    Returns:
        The description with the results.
    """
    build = build_attention if row["size"] == ATTENTION else build_training_step
    step, peak_bytes, checks = build(row, is_toy)
    wait("built")
    start = time.perf_counter()
    losses = [step()]
    first_secs = time.perf_counter() - start
    wait("compiled")
    losses += [step() for _ in range(FIRST_ROUNDS - 1)]
    secs = []
    for _ in range(2 if is_toy else MEASURED_ROUNDS):
        start = time.perf_counter()
        losses.append(step())
        secs.append(time.perf_counter() - start)
    return {
        **row,
        "device": "CPU" if is_toy else device_name(),
        "milliseconds": round(1000 * statistics.median(secs), 3),
        "least_milliseconds": round(1000 * min(secs), 3),
        "first_secs": round(first_secs, 1),
        "losses": [losses[0], losses[-1]],
        "peak_bytes": peak_bytes(),
        **checks,
        **({} if is_toy else profile(step)),
    }


def profile(step: Callable[[], float]) -> dict:
    """Returns the milliseconds of the kernels of a step: their sum, and by class and by name."""
    try:
        with KernelProfile() as kernels:
            for _ in range(PROFILED_ROUNDS):
                step()
        rows = kernels.rows(PROFILED_ROUNDS)
    except Exception as error:  # the times of the steps are worth a row without a profile
        return {"profile_error": repr(error)}
    return {
        "kernel_milliseconds": round(sum(microseconds for _, microseconds, _ in rows) / 1000, 3),
        "classes": milliseconds_by_class(rows),
        "kernels": rows[:NUM_PROFILED_KERNELS],
    }


def build_training_step(row: dict, is_toy: bool) -> Measurable:
    """Builds the model of a row and its training step."""
    from official_bert import BertConfig

    length = row["length"]
    batch_size = row["batch_size"]
    num_predictions = SHAPES[length, batch_size]
    vocab_size = row.get("vocab_size", training_step.VOCAB)
    if is_toy:
        length = TOY_LENGTH
        batch_size = TOY_BATCH_SIZE
        num_predictions = TOY_PREDICTIONS
        vocab_size = TOY_VOCAB
    training_step.VOCAB = vocab_size
    training_step.LENGTH = length
    training_step.PREDICTIONS = num_predictions
    config = BertConfig.from_size(row["size"], vocab_size)
    config.num_hidden_layers = row["layers"]
    rate = row.get("dropout", config.hidden_dropout_prob)
    config.hidden_dropout_prob = rate
    config.attention_probs_dropout_prob = rate
    if is_toy:
        for name, value in TOY_SIZES.items():
            setattr(config, name, value)
    if row["variant"] in PEERS:
        step, peak_bytes = peer_step(config, batch_size, row["variant"])
        return Measurable(step, peak_bytes, checks={})
    return _build_our_step(config, batch_size, row["variant"], is_toy)


def _build_our_step(config, batch_size: int, variant: str, is_toy: bool) -> Measurable:
    import tensorflow as tf

    from benchmarks import gpu_variants
    from official_bert.training.memory import peak_memory

    _require_gpu(is_toy)
    _candidates.enter_context(gpu_variants.apply_candidates(candidate_names(variant)))
    dtype = training_step.Variant("bfloat16", jit_compile=True)
    run = training_step.our_step(config, batch_size, dtype)
    arrays = training_step.random_batch(batch_size)
    batch = {name: tf.constant(array[None]) for name, array in arrays.items()}

    def step() -> float:
        return float(run(batch)["loss"])

    def peak_bytes() -> float:
        return peak_memory().get("gpu_memory_mb", 0) * 1e6

    return Measurable(step, peak_bytes, checks={})


def candidate_names(variant: str) -> list[str]:
    """Returns the candidates of gpu_variants.py that a variant names."""
    return [name for name in variant.split() if name != PLAIN]


def _require_gpu(is_toy: bool):
    import tensorflow as tf

    if not is_toy and not tf.config.list_physical_devices("GPU"):
        raise RuntimeError("TensorFlow sees no GPU; its log says which library is missing")


def build_attention(row: dict, is_toy: bool) -> Measurable:
    """Builds the forward and backward pass of an attention without projections, and checks it.

    Results and gradients are compared with those in float32, without dropout and with padding. With
    dropout, the masks of both passes are compared: the context is linear in the value, so its
    product with the upstream gradient equals the product of the value and its gradient.
    """
    import tensorflow as tf

    from benchmarks import gpu_variants

    _require_gpu(is_toy)
    shape = [row["batch_size"], row["length"], NUM_HEADS, HEAD_SIZE]
    if is_toy:
        shape = [2, 64, 2, HEAD_SIZE]
    batch_size, length, *_ = shape
    generator = np.random.default_rng(1)
    arrays = [generator.standard_normal(shape, np.float32) for _ in range(4)]
    tensors = [tf.constant(array, tf.bfloat16) for array in arrays]
    lengths = generator.integers(length // 2, length, batch_size, np.int32, endpoint=True)
    _candidates.enter_context(gpu_variants.apply_candidates(candidate_names(row["variant"])))
    attend = choose_attention(row["variant"])

    def compile_pass(rate: float, lengths):
        @tf.function(jit_compile=True, autograph=False)
        def attention_pass(query, key, value, upstream, number):
            seed = tf.stack([number, 1])
            with tf.GradientTape() as tape:
                tape.watch([query, key, value])
                context = attend(query, key, value, lengths, rate, seed)
            return context, *tape.gradient(context, [query, key, value], upstream)

        return attention_pass

    errors = compute_errors(compile_pass(0.0, lengths), tensors, lengths)
    full_lengths = np.full(batch_size, length, np.int32)
    run = compile_pass(DROPOUT_RATE, full_lengths)
    checks = {"errors": errors, **compare_masks(run, tensors)}
    numbers = itertools.count(NUM_COMPARED_MASKS)

    def step() -> float:
        results = run(*tensors, tf.constant(next(numbers)))
        return float(results[1][0, 0, 0, 0].numpy())

    return Measurable(step, peak_bytes=lambda: 0, checks=checks)


def compare_masks(run, tensors: list) -> dict[str, list[float]]:
    """Returns how far the dropout masks of forward and backward pass differ, in some steps.

    Returns:
        `mask_differences`, relative and near 0 for equal masks, and `output_norms`, which differ
        from step to step if the masks do.
    """
    import tensorflow as tf

    differences = []
    norms = []
    value, upstream = (tensor.numpy().astype(np.float32) for tensor in tensors[2:])
    for number in range(NUM_COMPARED_MASKS):
        context, _, _, value_gradient = run(*tensors, tf.constant(number))
        forward_terms = context.numpy().astype(np.float32) * upstream
        backward_terms = value_gradient.numpy().astype(np.float32) * value
        difference = forward_terms.sum(dtype=np.float64) - backward_terms.sum(dtype=np.float64)
        differences.append(round(float(abs(difference) / np.linalg.norm(forward_terms)), 4))
        norms.append(round(float(np.linalg.norm(context.numpy().astype(np.float32))), 2))
    return {"mask_differences": differences, "output_norms": norms}


def choose_attention(variant: str) -> Callable:
    """Returns a function of query, key and value, B S N H, lengths, rate of dropout and seed."""
    from benchmarks import gpu_variants

    if variant == "kernel":
        return _attend_with_kernels
    if variant in gpu_variants.FLASH:
        return functools.partial(_attend_with_cudnn, variant)
    return functools.partial(_attend_with_products, variant)


def _padding_bias(lengths, length: int):
    import tensorflow as tf

    return tf.where(tf.sequence_mask(lengths, length)[:, None, None], 0.0, -10000.0)


def _attend_with_cudnn(variant: str, query, key, value, lengths, rate: float, seed):
    import tensorflow as tf

    from benchmarks import cudnn_attention

    length = query.shape[1]
    mask = {"lengths": lengths}
    if variant == "flash_bias":
        bias = tf.repeat(_padding_bias(lengths, length), length, 2)
        mask = {"bias": tf.cast(bias, query.dtype)}
    return cudnn_attention.attend(
        query,
        key,
        value,
        rate=rate,
        seed=DROPOUT_INDEX,
        is_in_module=variant != "flash_custom_call",
        **mask,
    )


def _attend_with_kernels(query, key, value, lengths, rate: float, seed):
    import tensorflow as tf

    from benchmarks import gpu_variants, kernel_attention

    batch_size, length, num_heads, size = query.shape
    qkv = tf.stack([query, key, value], axis=2)
    context = kernel_attention.attend(
        qkv=tf.reshape(qkv, [batch_size, length, 3 * num_heads * size]),
        qkv_bias=tf.zeros([3 * num_heads * size]),
        lengths=tf.constant(lengths, tf.int32),
        keys=tf.stack(gpu_variants.hash_keys(seed, DROPOUT_INDEX)),
        rate=rate,
        num_heads=num_heads,
        sum_columns=gpu_variants.column_sums,
    )
    return tf.reshape(context, query.shape)


def _attend_with_products(variant: str, query, key, value, lengths, rate: float, seed):
    import tensorflow as tf

    from benchmarks import gpu_variants
    from official_bert.modeling import layers

    query, key, value = (tf.transpose(each, [0, 2, 1, 3]) for each in (query, key, value))
    scaled = query * tf.cast(query.shape[-1] ** -0.5, query.dtype)
    scores = tf.matmul(scaled, key, transpose_b=True)
    bias = _padding_bias(lengths, query.shape[2])
    if "softmax" in variant:
        keep = gpu_variants.draw_mask(scores, rate, seed, DROPOUT_INDEX)
        weights = gpu_variants.weigh_scores(scores, bias, keep, rate)
    else:
        probabilities = tf.nn.softmax(tf.cast(scores, tf.float32) + bias)
        probabilities = tf.cast(probabilities, query.dtype)
        weights = layers.dropout(probabilities, rate, seed, DROPOUT_INDEX)
    return tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])


def compute_errors(run, tensors: list, lengths) -> dict[str, float]:
    """Returns the relative errors of context and gradients against float32, at all tokens."""
    import tensorflow as tf

    from benchmarks import cudnn_attention

    query, key, value, upstream = tensors
    is_token = np.arange(query.shape[1])[None] < lengths[:, None]
    upstream = tf.constant(upstream.numpy() * is_token[:, :, None, None], upstream.dtype)
    bias = np.where(is_token, 0.0, -10000.0).astype(np.float32)[:, None, None]

    @tf.function(jit_compile=True, autograph=False)
    def run_exactly(query, key, value, upstream):
        wide = [tf.cast(each, tf.float32) for each in (query, key, value)]
        with tf.GradientTape() as tape:
            tape.watch(wide)
            context = cudnn_attention.attend_exactly(*wide, bias)
        return context, *tape.gradient(context, wide, tf.cast(upstream, tf.float32))

    names = "context", "query", "key", "value"
    results = run(query, key, value, upstream, tf.constant(0))
    exact_results = run_exactly(query, key, value, upstream)
    errors = {}
    for name, result, exact in zip(names, results, exact_results, strict=True):
        difference = result.numpy().astype(np.float32) - exact.numpy()
        if name == "context":
            difference *= is_token[:, :, None, None]
        errors[name] = float(np.linalg.norm(difference) / np.linalg.norm(exact.numpy()))
    return errors
