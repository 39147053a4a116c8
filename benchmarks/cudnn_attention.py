"""cuDNN's fused attention, called from TensorFlow in a function that XLA compiles for a GPU.

XLA knows the kernels as custom calls, whose configuration is a JSON text. The forward pass keeps
one number for each row of scores. The backward pass computes probabilities and dropout again.

cuDNN draws the dropout mask from a seed, which is compiled into the program, and from a counter,
which each execution increases. Forward and backward pass have one counter each, so both must run
equally often. A resumed run draws other masks.

B batch   S length   N heads   H head size
"""

import json

import tensorflow as tf

_MLIR_TYPES = {
    tf.bfloat16: "bf16",
    tf.float16: "f16",
    tf.float32: "f32",
    tf.int32: "i32",
    tf.uint8: "ui8",
}
_MODULE_VERSION = 9  # of XlaCallModule, the oldest that TensorFlow 2.21 accepts
_NO_PLATFORM_CHECK = "platform"


def attend(
    query, key, value, *, rate: float, seed: int, lengths=None, bias=None, is_in_module: bool = True
):
    """Computes scaled dot-product attention with cuDNN's kernels.

    Args:
        query: bfloat16 or float16[B, S, N, H].
        key: like `query`.
        value: like `query`.
        rate: the rate of dropout.
        seed: the seed of dropout, which should differ between layers.
        lengths: int32[B], the number of tokens of each text. Padding has to follow them.
        bias: [B, 1, S, S] in the type of the query, added to the scores instead of `lengths`.
        is_in_module: whether the call is part of a StableHLO module, which chooses the layout of
            the results. Otherwise it is an XlaCustomCallV2.

    Returns:
        The context of each position, like `query`.
    """
    call = _call_in_module if is_in_module else _call_directly
    shape = _static_shape(query)
    has_bias = lengths is None
    if has_bias:
        mask = [bias]
    else:
        query_lengths = tf.fill([shape[0]], shape[1])
        mask = [query_lengths, tf.convert_to_tensor(lengths, tf.int32)]
    forward_name, backward_name = _target_names(rate, has_bias)
    settings = {"rate": rate, "seed": seed, "mask_type": "NO_MASK" if has_bias else "PADDING"}
    forward_config = _format_config(query, is_backward=False, **settings)
    backward_config = _format_config(query, is_backward=True, **settings)
    heads_first = (query.dtype, _put_heads_first(shape))
    log_sums = (tf.float32, [shape[0], shape[2], shape[1]])
    scratch = (tf.uint8, [0])

    @tf.custom_gradient
    def apply(query, key, value):
        operands = [query, key, value, *mask]
        results = [heads_first, log_sums, scratch]
        context, sums, _ = call(forward_name, operands, results, forward_config)
        context = tf.transpose(context, [0, 2, 1, 3])

        def gradient(upstream):
            # The kernels expect a bias before the context, and lengths after it.
            last_operands = [*mask, context] if has_bias else [context, *mask]
            operands = [query, key, value, sums, upstream, *last_operands]
            results = [heads_first] * 3
            if has_bias:
                results.append((query.dtype, bias.shape.as_list()))
            results.append(scratch)
            gradients = call(backward_name, operands, results, backward_config)
            return [tf.transpose(each, [0, 2, 1, 3]) for each in gradients[:3]]

        return context, gradient

    return apply(query, key, value)


def attend_exactly(query, key, value, bias):
    """Computes the same in float32 without dropout; `bias` is float32[B, 1, 1 or S, S]."""
    query, key, value = (
        tf.transpose(tf.cast(each, tf.float32), [0, 2, 1, 3]) for each in (query, key, value)
    )
    scores = tf.matmul(query, key, transpose_b=True) * query.shape[-1] ** -0.5
    return tf.transpose(tf.matmul(tf.nn.softmax(scores + bias), value), [0, 2, 1, 3])


def _static_shape(x) -> list[int]:
    if not x.shape.is_fully_defined():
        raise ValueError(
            f"the query has the shape {x.shape}; cuDNN's kernels need a fixed one, so batch the "
            "records with drop_remainder=True"
        )
    return x.shape.as_list()


def _put_heads_first(shape: list[int]) -> list[int]:
    batch, length, heads, size = shape
    return [batch, heads, length, size]


def _target_names(rate: float, has_bias: bool) -> tuple[str, str]:
    """Returns the names of XLA's custom calls of the forward and the backward pass."""
    name = f"__cudnn$fmha{'ScaleBias' if has_bias else ''}Softmax{'Dropout' if rate else ''}"
    return name, f"{name}Backward"


def _format_config(query, rate: float, seed: int, mask_type: str, is_backward: bool) -> str:
    batch, length, heads, size = query.shape.as_list()
    scores_shape = {
        "element_type": _MLIR_TYPES[query.dtype].upper(),
        "dimensions": [str(batch), str(heads), str(length), str(length)],
        "tuple_shapes": [],
        "layout": {"minor_to_major": ["3", "2", "1", "0"]},
        "is_dynamic_dimension": [False] * 4,
    }
    algorithm = {
        "algo_id": "0",
        "math_type": "TENSOR_OP_MATH",
        "tuning_knobs": {"17": "1", "24": "0"},
        "is_cudnn_frontend": True,
        "workspace_size": "0",
    }
    attention_config = {
        "algorithm": algorithm,
        "fmha_scale": size**-0.5,
        "intermediate_tensor_shape": scores_shape,
        "is_flash_attention": True,
        "mask_type": mask_type,
        "dropout_rate": rate,
        "seed": str(seed),
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
        **(_BACKWARD_PRODUCTS if is_backward else _FORWARD_PRODUCTS),
    }
    return json.dumps({"operation_queue_id": "0", "cudnn_fmha_backend_config": attention_config})


def _describe_product(
    contracting: tuple[int, int], left_batch: tuple[int, int], right_batch: tuple[int, int]
) -> dict:
    return {
        "lhs_contracting_dimensions": [str(contracting[0])],
        "rhs_contracting_dimensions": [str(contracting[1])],
        "lhs_batch_dimensions": [str(axis) for axis in left_batch],
        "rhs_batch_dimensions": [str(axis) for axis in right_batch],
    }


# The products whose results are the scores and the context.
_FORWARD_PRODUCTS = {
    "bmm1_dot_dimension_numbers": _describe_product((3, 3), (0, 2), (0, 2)),
    "bmm2_dot_dimension_numbers": _describe_product((3, 1), (0, 1), (0, 2)),
}
# The products whose results are the gradients of key, query, value and probabilities.
_BACKWARD_PRODUCTS = {
    "bmm1_grad_gemm1_dot_dimension_numbers": _describe_product((2, 1), (0, 1), (0, 2)),
    "bmm1_grad_gemm2_dot_dimension_numbers": _describe_product((3, 1), (0, 1), (0, 2)),
    "bmm2_grad_gemm1_dot_dimension_numbers": _describe_product((2, 1), (0, 1), (0, 2)),
    "bmm2_grad_gemm2_dot_dimension_numbers": _describe_product((3, 3), (0, 2), (0, 2)),
}


def _call_directly(target: str, operands: list, results: list, config: str):
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_custom_call_v2(
        operands=operands,
        call_target_name=target,
        backend_config=config,
        has_side_effect=False,
        result_dtypes=[dtype for dtype, _ in results],
        result_shapes=[shape for _, shape in results],
    )


def _call_in_module(target: str, operands: list, results: list, config: str):
    from tensorflow.compiler.tf2xla.python import xla

    return xla.call_module(
        operands,
        version=_MODULE_VERSION,
        module=_format_module(target, operands, results, config),
        Tout=[dtype for dtype, _ in results],
        Sout=[shape for _, shape in results],
        platforms=["CUDA"],
        disabled_checks=[_NO_PLATFORM_CHECK],
    )


def _format_module(target: str, operands: list, results: list, config: str) -> str:
    """Returns a StableHLO module with one custom call.

    Results with the shape [B, N, S, H] have the memory layout B S N H.
    """
    input_types = [_format_type(operand.dtype, operand.shape.as_list()) for operand in operands]
    output_types = [_format_type(dtype, shape) for dtype, shape in results]
    arguments = ", ".join(f"%arg{number}: {each}" for number, each in enumerate(input_types))
    names = ", ".join(f"%arg{number}" for number in range(len(input_types)))
    layouts = ", ".join(_format_layout(range(operand.shape.rank)) for operand in operands)
    result_layouts = ", ".join(_format_layout(_major_to_minor(shape)) for _, shape in results)
    returned = ", ".join(f"%0#{number}" for number in range(len(output_types)))
    quoted_config = config.replace("\\", "\\\\").replace('"', "\\22")
    inputs = ", ".join(input_types)
    outputs = ", ".join(output_types)
    return (
        "module @attention {\n"
        f"  func.func public @main({arguments}) -> ({outputs}) {{\n"
        f'    %0:{len(output_types)} = "stablehlo.custom_call"({names}) {{api_version = 2 : i32, '
        f'backend_config = "{quoted_config}", call_target_name = "{target}", '
        f"has_side_effect = false, operand_layouts = [{layouts}], "
        f"result_layouts = [{result_layouts}]}} : ({inputs}) -> ({outputs})\n"
        f"    return {returned} : {outputs}\n"
        "  }\n}\n"
    )


def _major_to_minor(shape: list[int]) -> list[int]:
    is_bias_gradient = len(shape) == 4 and shape[1] == 1
    if len(shape) == 4 and not is_bias_gradient:
        return [0, 2, 1, 3]
    return list(range(len(shape)))


def _format_type(dtype, shape: list[int]) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{_MLIR_TYPES[dtype]}>"


def _format_layout(major_to_minor) -> str:
    axes = list(major_to_minor)[::-1]
    return f"dense<{axes if len(axes) > 1 else axes[0]}> : tensor<{len(axes)}xindex>"
