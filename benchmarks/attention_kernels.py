#!/usr/bin/env python3
"""Compiles the attention kernels of kernel_attention.py with Triton, and checks them.

In: nothing. Out: a JSON list of kernels as PTX for NVIDIA's Hopper GPUs, in --output. Compiling
needs no GPU. PyTorch for CUDA brings Triton with it; `pip install triton` is enough for compiling.

--check compares the kernels with PyTorch: on a GPU in bfloat16, and without one in float32, in
Triton's interpreter (TRITON_INTERPRET=1). --sort times the kernels of a file on a GPU and moves the
fastest ones to its front, because kernel_attention.py uses the first kernel of each shape.

    python benchmarks/attention_kernels.py --output=attention_kernels.json
    TRITON_INTERPRET=1 python benchmarks/attention_kernels.py --check 128 256
    python benchmarks/attention_kernels.py --check 128 256 --sort=attention_kernels.json

B batch   S length   N heads   H head size
"""

import argparse
import json
import pathlib
import re
from typing import NamedTuple

import triton
import triton.language as tl

HEAD_SIZE = 64
# Warps, rows and columns of a block, the one that should be fastest first.
FORWARD_BLOCKS = [(8, 128, 128), (4, 64, 64), (4, 64, 128), (8, 128, 64)]
BACKWARD_BLOCKS = [(8, 64, 128), (4, 64, 64), (8, 128, 128)]
WHOLE_BLOCKS = [(8, None, None), (4, None, None), (16, None, None)]  # a block is a whole text
WHOLE_LENGTH = 128  # the longest text whose gradients one block computes
SHAPES = [
    (128, 12, 0.1),
    (128, 12, 0.0),
    (512, 12, 0.1),
    (512, 12, 0.0),
    (128, 16, 0.1),
    (512, 16, 0.1),
]  # length, heads and rate of dropout


class Problem(NamedTuple):
    """An attention that kernels compute.

    Attributes:
        length: tokens of a text.
        num_heads: heads of attention.
        rate: the rate of dropout.
        batch_size: texts.
    """

    length: int
    num_heads: int
    rate: float
    batch_size: int = 1


# The kernels. Each program computes one head of one text, or some rows or columns of its scores.


@triton.jit
def _mix(bits):
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def _draw_mask(rows, columns, head, keys, S: tl.constexpr, THRESHOLD: tl.constexpr):
    """Returns a block of the dropout mask, [B, N, S, S], that gpu_variants.hash_mask draws."""
    first_key = tl.load(keys).to(tl.uint32, bitcast=True)
    second_key = tl.load(keys + 1).to(tl.uint32, bitcast=True)
    position = ((head * S + rows[:, None]) * S + columns[None, :]).to(tl.uint32)
    return (_mix(position ^ first_key) ^ second_key) * 0x9E3779B1 >= THRESHOLD


@triton.jit
def _offsets(head, rows, WIDTH: tl.constexpr, S: tl.constexpr, N: tl.constexpr, H: tl.constexpr):
    """Returns the offsets of some rows of a head in [B, S, WIDTH]."""
    return ((head // N) * S + rows[:, None]) * WIDTH + (head % N) * H + tl.arange(0, H)[None, :]


@triton.jit
def _load_part(
    qkv,
    qkv_bias,
    head,
    rows,
    PART: tl.constexpr,
    S: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
):
    """Returns rows of query (PART 0), key (1) or value (2), with their bias."""
    x = tl.load(qkv + PART * N * H + _offsets(head, rows, 3 * N * H, S, N, H))
    bias = tl.load(qkv_bias + PART * N * H + (head % N) * H + tl.arange(0, H))
    return (x.to(tl.float32) + bias[None, :]).to(qkv.dtype.element_ty)


@triton.jit
def _store_part(
    gradient,
    x,
    head,
    rows,
    PART: tl.constexpr,
    S: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
):
    addresses = gradient + PART * N * H + _offsets(head, rows, 3 * N * H, S, N, H)
    tl.store(addresses, x.to(gradient.dtype.element_ty))


@triton.jit
def _compute_scores(query, key, columns, length, H: tl.constexpr):
    scale: tl.constexpr = H**-0.5
    padding = tl.where(columns < length, 0.0, -10000.0)
    return tl.dot(query, tl.trans(key)) * scale + padding[None, :]


@triton.jit
def forward(
    qkv,
    qkv_bias,
    lengths,
    keys,
    context,
    log_sums,
    S: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
):
    """Writes the context of some rows of a head, and the logarithm of each row's sum."""
    head = tl.program_id(0)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    length = tl.load(lengths + head // N)
    query = _load_part(qkv, qkv_bias, head, rows, 0, S, N, H)
    largest = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    result = tl.zeros([ROWS, H], tl.float32)
    for start in range(0, S, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        key = _load_part(qkv, qkv_bias, head, columns, 1, S, N, H)
        scores = _compute_scores(query, key, columns, length, H)
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new_largest[:, None])
        shrink = tl.exp(largest - new_largest)
        total = total * shrink + tl.sum(weights, 1)
        result = result * shrink[:, None]
        largest = new_largest
        if THRESHOLD > 0:
            keep = _draw_mask(rows, columns, head, keys, S, THRESHOLD)
            weights = tl.where(keep, weights * SCALE, 0.0)
        value = _load_part(qkv, qkv_bias, head, columns, 2, S, N, H)
        result = tl.dot(weights.to(value.dtype), value, result)
    result = result / total[:, None]
    addresses = context + _offsets(head, rows, N * H, S, N, H)
    tl.store(addresses, result.to(context.dtype.element_ty))
    tl.store(log_sums + head * S + rows, largest + tl.log(total))


@triton.jit
def backward_one(
    qkv,
    qkv_bias,
    lengths,
    keys,
    log_sums,
    upstream,
    gradient,
    S: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
):
    """Writes the gradients of query, key and value of a head, whose scores fit into one block."""
    head = tl.program_id(0)
    rows = tl.arange(0, S)
    length = tl.load(lengths + head // N)
    query = _load_part(qkv, qkv_bias, head, rows, 0, S, N, H)
    key = _load_part(qkv, qkv_bias, head, rows, 1, S, N, H)
    value = _load_part(qkv, qkv_bias, head, rows, 2, S, N, H)
    up = tl.load(upstream + _offsets(head, rows, N * H, S, N, H))
    row_log_sums = tl.load(log_sums + head * S + rows)
    weights = tl.exp(_compute_scores(query, key, rows, length, H) - row_log_sums[:, None])
    weights_gradient = tl.dot(up, tl.trans(value))
    dropped = weights
    if THRESHOLD > 0:
        keep = _draw_mask(rows, rows, head, keys, S, THRESHOLD)
        dropped = tl.where(keep, weights * SCALE, 0.0)
        weights_gradient = tl.where(keep, weights_gradient * SCALE, 0.0)
    value_gradient = tl.dot(tl.trans(dropped.to(up.dtype)), up)
    _store_part(gradient, value_gradient, head, rows, 2, S, N, H)
    inner = tl.sum(weights_gradient * weights, 1)
    scale: tl.constexpr = H**-0.5
    scores_gradient = (weights * (weights_gradient - inner[:, None]) * scale).to(up.dtype)
    _store_part(gradient, tl.dot(scores_gradient, key), head, rows, 0, S, N, H)
    _store_part(gradient, tl.dot(tl.trans(scores_gradient), query), head, rows, 1, S, N, H)


@triton.jit
def backward(
    qkv,
    qkv_bias,
    lengths,
    keys,
    log_sums,
    upstream,
    context,
    gradient,
    S: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
):
    """Writes the gradients of key and value for some columns, and of the query for as many rows."""
    head = tl.program_id(0)
    length = tl.load(lengths + head // N)
    scale: tl.constexpr = H**-0.5
    block = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    key = _load_part(qkv, qkv_bias, head, block, 1, S, N, H)
    value = _load_part(qkv, qkv_bias, head, block, 2, S, N, H)
    key_gradient = tl.zeros([COLUMNS, H], tl.float32)
    value_gradient = tl.zeros([COLUMNS, H], tl.float32)
    for start in range(0, S, ROWS):
        rows = start + tl.arange(0, ROWS)
        query = _load_part(qkv, qkv_bias, head, rows, 0, S, N, H)
        up = tl.load(upstream + _offsets(head, rows, N * H, S, N, H))
        out = tl.load(context + _offsets(head, rows, N * H, S, N, H))
        inner = tl.sum(up.to(tl.float32) * out.to(tl.float32), 1)
        row_log_sums = tl.load(log_sums + head * S + rows)
        weights = tl.exp(_compute_scores(query, key, block, length, H) - row_log_sums[:, None])
        weights_gradient = tl.dot(up, tl.trans(value))
        dropped = weights
        if THRESHOLD > 0:
            keep = _draw_mask(rows, block, head, keys, S, THRESHOLD)
            dropped = tl.where(keep, weights * SCALE, 0.0)
            weights_gradient = tl.where(keep, weights_gradient * SCALE, 0.0)
        value_gradient = tl.dot(tl.trans(dropped.to(up.dtype)), up, value_gradient)
        scores_gradient = (weights * (weights_gradient - inner[:, None]) * scale).to(up.dtype)
        key_gradient = tl.dot(tl.trans(scores_gradient), query, key_gradient)
    _store_part(gradient, key_gradient, head, block, 1, S, N, H)
    _store_part(gradient, value_gradient, head, block, 2, S, N, H)

    block_query = _load_part(qkv, qkv_bias, head, block, 0, S, N, H)
    block_up = tl.load(upstream + _offsets(head, block, N * H, S, N, H))
    block_out = tl.load(context + _offsets(head, block, N * H, S, N, H))
    block_inner = tl.sum(block_up.to(tl.float32) * block_out.to(tl.float32), 1)
    block_log_sums = tl.load(log_sums + head * S + block)
    query_gradient = tl.zeros([COLUMNS, H], tl.float32)
    for start in range(0, S, ROWS):
        columns = start + tl.arange(0, ROWS)
        other_key = _load_part(qkv, qkv_bias, head, columns, 1, S, N, H)
        other_value = _load_part(qkv, qkv_bias, head, columns, 2, S, N, H)
        block_scores = _compute_scores(block_query, other_key, columns, length, H)
        block_weights = tl.exp(block_scores - block_log_sums[:, None])
        block_weights_gradient = tl.dot(block_up, tl.trans(other_value))
        if THRESHOLD > 0:
            block_keep = _draw_mask(block, columns, head, keys, S, THRESHOLD)
            block_weights_gradient = tl.where(block_keep, block_weights_gradient * SCALE, 0.0)
        block_scores_gradient = (
            block_weights * (block_weights_gradient - block_inner[:, None]) * scale
        ).to(block_up.dtype)
        query_gradient = tl.dot(block_scores_gradient, other_key, query_gradient)
    _store_part(gradient, query_gradient, head, block, 0, S, N, H)


def list_kernels(length: int) -> list[tuple]:
    """Returns the kernels for a length, each with a block; the forward kernels come first."""
    kernels = [(forward, block) for block in FORWARD_BLOCKS]
    if length <= WHOLE_LENGTH:
        return kernels + [(backward_one, block) for block in WHOLE_BLOCKS]
    return kernels + [(backward, block) for block in BACKWARD_BLOCKS]


def count_blocks(kernel, block: tuple, length: int) -> int:
    """Returns the number of programs that compute one head of one text."""
    _, rows, columns = block
    block_length = rows if kernel is forward else columns
    return length // block_length if block_length else 1


def fix_arguments(kernel, block: tuple, problem: Problem) -> dict:
    """Returns the compile-time arguments of a kernel."""
    _, rows, columns = block
    arguments = {
        "S": problem.length,
        "N": problem.num_heads,
        "H": HEAD_SIZE,
        "ROWS": rows,
        "COLUMNS": columns,
        "THRESHOLD": round(problem.rate * 2**32),
        "SCALE": 1.0 / (1.0 - problem.rate),
    }
    return {name: value for name, value in arguments.items() if name in kernel.arg_names}


# Compilation.


def compile_kernel(kernel, block: tuple, problem: Problem) -> dict:
    """Returns a kernel as PTX, with what a call needs to know about it."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    fixed = fix_arguments(kernel, block, problem)
    types = {"qkv_bias": "*fp32", "log_sums": "*fp32", "lengths": "*i32", "keys": "*i32"}
    signature = {
        name: "constexpr" if name in fixed else types.get(name, "*bf16")
        for name in kernel.arg_names
    }
    numbers = {name: (number,) for number, name in enumerate(kernel.arg_names)}
    is_aligned = [["tt.divisibility", 16]]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={numbers[name]: value for name, value in fixed.items()},
        attrs={numbers[name]: is_aligned for name in kernel.arg_names if name not in fixed},
    )
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": block[0], "num_stages": 2},
    )
    ptx = compiled.asm["ptx"]
    entry = ptx[ptx.index(".entry") :]
    return {
        "name": compiled.metadata.name,
        "length": problem.length,
        "num_heads": problem.num_heads,
        "rate": problem.rate,
        "block": list(block),
        "num_blocks": count_blocks(kernel, block, problem.length),
        "num_threads": 32 * compiled.metadata.num_warps,
        "shared_bytes": compiled.metadata.shared,
        "num_parameters": entry[: entry.index("{")].count(".param"),
        "ptx": _strip_debugging(ptx),
    }


def _strip_debugging(ptx: str) -> str:
    """Returns PTX without comments, names of files and numbers of lines."""
    ptx = re.sub(r"\s*//[^\n]*", "", ptx)
    ptx = re.sub(r"\n\s*\.(loc|file)\s[^\n]*", "", ptx)
    return re.sub(r"\n\s*\.section\s[^{]*\{[^}]*\}", "", ptx).strip() + "\n"


def compile_all() -> list[dict]:
    """Returns the kernels of all shapes, and prints their names."""
    kernels = []
    for shape in SHAPES:
        problem = Problem(*shape)
        for kernel, block in list_kernels(problem.length):
            kernels.append(compile_kernel(kernel, block, problem))
            print(kernel.__name__, *shape, block, flush=True)
    return kernels


# Checks and times.


def draw_tensors(problem: Problem) -> dict:
    """Returns random inputs of all kernels, and results that are not written yet."""
    import torch

    torch.manual_seed(1)
    has_gpu = torch.cuda.is_available()
    device = "cuda" if has_gpu else "cpu"
    dtype = torch.bfloat16 if has_gpu else torch.float32
    length, num_heads, _, batch_size = problem
    width = num_heads * HEAD_SIZE
    qkv = torch.randn(batch_size, length, 3 * width, device=device).to(dtype)
    upstream = torch.randn(batch_size, length, width, device=device).to(dtype)
    lengths = torch.randint(length // 2, length + 1, (batch_size,), device=device)
    return {
        "qkv": qkv,
        "qkv_bias": torch.randn(3 * width, device=device),
        "lengths": lengths.int(),
        "keys": torch.tensor([0x12345678, -0x6543210], dtype=torch.int32, device=device),
        "upstream": upstream,
        "context": torch.full_like(upstream, float("nan")),
        "log_sums": torch.empty(batch_size, num_heads, length, device=device),
        "gradient": torch.full_like(qkv, float("nan")),
    }


def run_kernel(kernel, block: tuple, problem: Problem, tensors: dict):
    """Runs a kernel, which writes its results into the tensors."""
    num_programs = problem.batch_size * problem.num_heads
    grid = (num_programs, count_blocks(kernel, block, problem.length))
    kernel[grid](
        **{name: tensors[name] for name in kernel.arg_names if name in tensors},
        **fix_arguments(kernel, block, problem),
        num_warps=block[0],
        num_stages=2,
    )


def check_kernels(problem: Problem, kernels: list[tuple]):
    """Prints the relative error of each kernel against PyTorch."""
    tensors = draw_tensors(problem)
    exact_context, exact_gradient = attend_exactly(tensors, problem)
    for kernel, block in kernels:
        name = "context" if kernel is forward else "gradient"
        exact = exact_context if kernel is forward else exact_gradient
        tensors[name].fill_(float("nan"))
        run_kernel(kernel, block, problem, tensors)
        error = float((tensors[name].float() - exact).norm() / exact.norm())
        print(f"{kernel.__name__} {block}: relative error {error:.2e}", flush=True)


def time_kernels(problem: Problem) -> dict[tuple, float]:
    """Returns and prints the milliseconds of each kernel, by its name and block."""
    tensors = draw_tensors(problem)
    times = {}
    for kernel, block in list_kernels(problem.length):

        def run(kernel=kernel, block=block):
            run_kernel(kernel, block, problem, tensors)

        milliseconds = triton.testing.do_bench(run, warmup=5, rep=30, return_mode="median")
        times[kernel.__name__, block] = milliseconds
        print(f"{kernel.__name__} {problem.length} {block}: {milliseconds:.4f} ms", flush=True)
    return times


def attend_exactly(tensors: dict, problem: Problem) -> tuple:
    """Returns the context and the gradient of `qkv` in float32, by PyTorch."""
    import torch

    length, num_heads, rate, batch_size = problem
    qkv = tensors["qkv"].detach().float().requires_grad_()
    parts = (qkv + tensors["qkv_bias"]).view(batch_size, length, 3, num_heads, HEAD_SIZE)
    query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
    is_token = torch.arange(length, device=qkv.device)[None] < tensors["lengths"][:, None]
    bias = torch.where(is_token, 0.0, -10000.0)[:, None, None]
    weights = (query @ key.transpose(-1, -2) * HEAD_SIZE**-0.5 + bias).softmax(-1)
    if rate:
        first_key, second_key = (int(key) % 2**32 for key in tensors["keys"])
        position = torch.arange(weights.numel(), device=qkv.device)
        bits = (_mix_exactly(position ^ first_key) ^ second_key) * 0x9E3779B1 % 2**32
        keep = (bits >= round(rate * 2**32)).view(weights.shape)
        weights = torch.where(keep, weights / (1.0 - rate), 0.0)
    upstream = tensors["upstream"]
    context = (weights @ value).permute(0, 2, 1, 3).reshape(upstream.shape)
    context.backward(upstream.float())
    return context.detach(), qkv.grad


def _mix_exactly(bits):
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D % 2**32
    bits = (bits ^ (bits >> 15)) * 0x846CA68B % 2**32
    return bits ^ (bits >> 16)


def sort_kernels(path: pathlib.Path):
    """Sorts the kernels of a file by their times with 12 heads and dropout."""
    times = {
        128: time_kernels(Problem(128, 12, 0.1, batch_size=256)),
        512: time_kernels(Problem(512, 12, 0.1, batch_size=64)),
    }
    kernels = json.loads(path.read_text(encoding="utf-8"))
    kernels.sort(key=lambda each: times[each["length"]][each["name"], tuple(each["block"])])
    path.write_text(json.dumps(kernels, indent=1), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, help="JSON file for the kernels")
    parser.add_argument(
        "--check",
        nargs="+",
        type=int,
        default=[],
        metavar="LENGTH",
        help="lengths at which the kernels are compared with PyTorch, multiples of 128",
    )
    parser.add_argument(
        "--first_block_only",
        action="store_true",
        help="check one block of each kernel, because the interpreter is slow",
    )
    parser.add_argument("--sort", type=pathlib.Path, help="file whose kernels are timed and sorted")
    flags = parser.parse_args()
    for length in flags.check:
        kernels = list_kernels(length)
        if flags.first_block_only:
            kernels = [kernels[0], kernels[len(FORWARD_BLOCKS)]]
        # So few texts, and heads of each, take seconds in the interpreter.
        count = max(1, 256 // length)
        check_kernels(Problem(length, count, 0.1, batch_size=count), kernels)
    if flags.output:
        flags.output.write_text(json.dumps(compile_all(), indent=1), encoding="utf-8")
    if flags.sort:
        sort_kernels(flags.sort)


if __name__ == "__main__":
    main()
