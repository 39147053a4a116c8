"""Attention by kernels of this project, called from a function that XLA compiles for a GPU.

The kernels read the joined product of query, key and value, add its bias, and write the context.
They draw the dropout masks of gpu_variants.hash_mask, so a resumed run draws the same ones. The
backward pass computes probabilities and masks again.

`attention_kernels.py` compiles the kernels. The environment variable ATTENTION_KERNELS_FILE names
the file that it has written.

B batch   S length   N heads   H head size
"""

import functools
import json
import os
import pathlib

import tensorflow as tf

KERNELS_FILE = "ATTENTION_KERNELS_FILE"
_NUM_SCRATCH = 2  # parameters that Triton adds to each kernel, unused in these


def attend(qkv, qkv_bias, lengths, keys, *, rate: float, num_heads: int, sum_columns):
    """Computes scaled dot-product attention.

    Args:
        qkv: bfloat16[B, S, 3*N*H], the product of each position with query, key and value.
        qkv_bias: float32[3*N*H], the bias of the product.
        lengths: int32[B], the number of tokens of each text. Padding has to follow them.
        keys: uint32[2], the keys of the dropout hash.
        rate: the rate of dropout.
        num_heads: N.
        sum_columns: a function that returns the sums of the columns of a matrix.

    Returns:
        The context, [B, S, N*H] in the type of `qkv`.
    """
    batch_size, length, qkv_width = qkv.shape
    width = qkv_width // 3
    keys = tf.bitcast(keys, tf.int32)
    kernels = choose_kernels(_read_kernels(), length=length, num_heads=num_heads, rate=rate)

    @tf.custom_gradient
    def apply(qkv, qkv_bias):
        operands = [qkv, qkv_bias, lengths, keys]
        log_sums = (tf.float32, [batch_size, num_heads, length])
        results = [(qkv.dtype, [batch_size, length, width]), log_sums]
        context, sums = _call(kernels["forward"], operands, results, batch_size)

        def gradient(upstream):
            operands = [qkv, qkv_bias, lengths, keys, sums, upstream]
            kernel = kernels.get("backward_one")
            if kernel is None:
                kernel = kernels["backward"]
                operands.append(context)
            results = [(qkv.dtype, list(qkv.shape))]
            (qkv_gradient,) = _call(kernel, operands, results, batch_size)
            return qkv_gradient, sum_columns(tf.reshape(qkv_gradient, [-1, qkv_width]))

        return context, gradient

    return apply(qkv, qkv_bias)


@functools.cache
def _read_kernels() -> list[dict]:
    if KERNELS_FILE not in os.environ:
        raise ValueError(
            f"the environment variable {KERNELS_FILE} is not set; run "
            "benchmarks/attention_kernels.py --output=FILE and set it to that file"
        )
    return json.loads(pathlib.Path(os.environ[KERNELS_FILE]).read_text(encoding="utf-8"))


def choose_kernels(kernels: list[dict], *, length: int, num_heads: int, rate: float) -> dict:
    """Returns the first kernel of each name that fits the arguments, by its name."""
    shape = {"length": length, "num_heads": num_heads, "rate": rate}
    chosen = {}
    for kernel in kernels:
        if shape.items() <= kernel.items():
            chosen.setdefault(kernel["name"], kernel)
    if not chosen:
        raise ValueError(
            f"no kernel for length {length}, {num_heads} heads and rate {rate}; add the shape to "
            "SHAPES in benchmarks/attention_kernels.py and compile the kernels again"
        )
    return chosen


def _call(kernel: dict, operands: list, results: list, batch_size: int) -> list:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    results = results + [(tf.uint8, [16])] * _NUM_SCRATCH
    num_parameters = len(operands) + len(results)
    if num_parameters != kernel["num_parameters"]:
        raise ValueError(
            f"the kernel {kernel['name']} has {kernel['num_parameters']} parameters instead of "
            f"{num_parameters}; compile the kernels again with benchmarks/attention_kernels.py"
        )
    outputs = gen_xla_ops.xla_custom_call_v2(
        operands=operands,
        call_target_name="__gpu$xla.gpu.ptx",
        backend_config=format_config(kernel, batch_size),
        has_side_effect=False,
        result_dtypes=[dtype for dtype, _ in results],
        result_shapes=[shape for _, shape in results],
    )
    return outputs[:-_NUM_SCRATCH]


def format_config(kernel: dict, batch_size: int) -> str:
    """Returns what XLA needs to know about a kernel, as a dictionary in the syntax of MLIR."""
    texts = {"name": kernel["name"], "kernel_type": "ptx", "kernel_data": kernel["ptx"]}
    numbers = {
        "grid_x": batch_size * kernel["num_heads"],
        "grid_y": kernel["num_blocks"],
        "grid_z": 1,
        "block_x": kernel["num_threads"],
        "block_y": 1,
        "block_z": 1,
        "shared_mem_bytes": kernel["shared_bytes"],
    }
    fields = [f"{name} = {_quote(text)}" for name, text in texts.items()]
    fields += [f"{name} = {number} : i32" for name, number in numbers.items()]
    return f"{{{', '.join(fields)}}}"


def _quote(text: str) -> str:
    letters = (
        letter if letter.isprintable() and letter not in '"\\' else f"\\{ord(letter):02X}"
        for letter in text
    )
    return f'"{"".join(letters)}"'
