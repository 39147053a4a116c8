#!/usr/bin/env python3
"""Measures what makes a pre-training step on a GPU faster: flags of XLA and other computations.

In: batches of random ids. Out: a table, and a line of JSON in --output for each finished row, with
the time of its kernels. Rows that this file already contains are not measured again; a row that
failed contains the error and is measured again.

A row names candidates of gpu_variants.py, which replace parts of the model, "plain" for none, or a
peer of gpu_step.py. Our steps are those of gpu_step.py in bfloat16 with XLA. Each row is a process
of its own. The processes of a batch build and compile at the same time, share a cache of what XLA
tunes, and then measure one after the other.

| stage | question |
|---|---|
| baseline | Where does the time of a step go, and which attention is fastest at 128 tokens? |
| peers | How fast is Hugging Face's compiled step? |
| kernels | Which candidates make a step of four layers faster, together and alone? |
| attention | Which attention is fastest at 512 tokens? |
| flags | Which flags of XLA make the step faster? |
| deep | What do the best candidates gain with all twelve layers? |
| large | What do they gain in BERT-Large and at 512 tokens, beside Hugging Face? |

    python benchmarks/attention_kernels.py --output=kernels.json
    export ATTENTION_KERNELS_FILE=kernels.json
    python benchmarks/gpu_lab.py --stage baseline kernels --output=gpu_lab.jsonl --max_minutes=10
"""

import argparse
import contextlib
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from gpu_rows import ATTENTION, PLAIN, TOY_BATCH_SIZE, TOY_LENGTH, measure
from gpu_step import SHAPES

BATCH_SIZES = dict(list(SHAPES))  # by length
PEER = "Hugging Face bfloat16 compiled"
TOGETHER = "hash norm gelu softmax loss qkv padded"
ATTENTIONS = [PLAIN, "hash softmax", "flash", "flash_custom_call", "flash_bias", "kernel"]
_REPORT_MARK = "@"  # begins the lines that a process prints for its parent
_MAX_LOG_LETTERS = 1500  # of the log of a failed process, at its end
_DUMPED_PROGRAMS = ".*update.*|.*attention_pass.*"  # the programs of steps and attentions


def describe_row(
    variant: str,
    layers: int = 4,
    length: int = 128,
    size: str = "base",
    flags: str = "",
    **settings,
) -> dict:
    """Returns the description of a row.

    Args:
        variant: names of candidates, "plain", or a peer.
        layers: the number of layers.
        length: tokens of a text, one of SHAPES.
        size: a named size of BertConfig, or ATTENTION.
        flags: flags of XLA.
        **settings: the `dropout` or the `vocab_size` of the model.
    """
    return {
        "size": size,
        "layers": layers,
        "length": length,
        "batch_size": BATCH_SIZES[length],
        "variant": variant,
        "flags": flags,
        **settings,
    }


def describe_attentions(length: int) -> list[dict]:
    """Returns the rows of all attentions at a length."""
    return [describe_row(variant, 1, length, ATTENTION) for variant in ATTENTIONS]


def describe_plain_rows(*flags: str) -> list[dict]:
    """Returns the rows of the plain step with some flags of XLA, one row for each."""
    return [describe_row(PLAIN, flags=each) for each in flags]


# The batches of each stage; the first ones answer the most.
STAGES = {
    "baseline": [[describe_row(PLAIN), *describe_attentions(128)]],
    "peers": [[describe_row(PEER, 12)]],
    "kernels": [
        [
            describe_row(TOGETHER),
            describe_row(f"{TOGETHER} barrier"),
            describe_row(f"{TOGETHER} flash"),
            describe_row(f"{TOGETHER} kernel"),
            describe_row("hash"),
            describe_row("norm"),
        ],
        [describe_row(each) for each in ("gelu", "softmax", "qkv", "loss", "residual", "padded")],
        [
            describe_row("norm barrier"),
            describe_row("gelu barrier"),
            describe_row("norm gelu sums"),
            describe_row("probabilities"),
        ],
    ],
    "attention": [describe_attentions(512)],
    "flags": [
        [
            *describe_plain_rows(
                "--xla_gpu_dot_merger_threshold_mb=1024",
                "--xla_gpu_enable_cublaslt=true",
                "--xla_gpu_enable_triton_gemm=false",
                "--xla_gpu_enable_command_buffer=",
            ),
            describe_row(PLAIN, dropout=0.0),
            describe_row(PLAIN, vocab_size=30528),
        ],
        describe_plain_rows(
            "--xla_gpu_enable_cudnn_layer_norm=true",
            "--xla_gpu_experimental_enable_fusion_autotuner=true",
            "--xla_gpu_unsupported_enable_triton_multi_output_fusion=true",
            "--xla_gpu_experimental_enable_fusion_block_level_rewriter=true",
        ),
    ],
    "deep": [[describe_row(each, 12) for each in (PLAIN, TOGETHER, f"{TOGETHER} kernel")]],
    "large": [
        [describe_row(each, 24, 512, "large") for each in (f"{TOGETHER} kernel", PEER)],
        [describe_row(each, 12, 512) for each in (f"{TOGETHER} kernel", PEER)],
        [describe_row(each, 24, 128, "large") for each in (f"{TOGETHER} kernel", PEER)],
    ],
}


class RowProcess:
    """The process of one row, which waits for its parent after building and after compiling.

    Attributes:
        row: the description of the row.
    """

    def __init__(self, row: dict, flags: argparse.Namespace):
        """Starts the process; `flags` are those of the command line."""
        self.row = row
        self._log_path = flags.output.with_suffix(f".{os.getpid()}.{id(self)}.log")
        self._log = self._log_path.open("w")
        command = [sys.executable, __file__, "--one", json.dumps(row), "--output", os.devnull]
        if flags.toy:
            command.append("--toy")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=_environment(row, flags),
        )
        self._reports = queue.Queue()
        threading.Thread(target=self._read_reports, daemon=True).start()

    def _read_reports(self):
        for line in self._process.stdout:
            if line.startswith(_REPORT_MARK):
                self._reports.put(line.removeprefix(_REPORT_MARK).strip())
        self._reports.put("")

    def next_report(self, deadline: float) -> str:
        """Returns the next report of the process, "" at its end or at the deadline."""
        try:
            return self._reports.get(timeout=max(0.1, deadline - time.monotonic()))
        except queue.Empty:
            return ""

    def resume(self):
        """Lets a waiting process continue."""
        with contextlib.suppress(BrokenPipeError):  # the process has failed
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def stop(self) -> str:
        """Ends the process and returns the end of its log."""
        self._process.kill()
        self._process.wait()
        self._log.close()
        text = self._log_path.read_text(errors="replace")
        self._log_path.unlink()
        return text[-_MAX_LOG_LETTERS:]


def _environment(row: dict, flags: argparse.Namespace) -> dict[str, str]:
    xla_flags = [os.environ.get("XLA_FLAGS", ""), row["flags"]]
    if not flags.toy:
        xla_flags.append(f"--xla_gpu_per_fusion_autotune_cache_dir={flags.cache_dir}")
    if flags.dump_dir:
        name = f"{row['size']} {row['layers']} {row['length']} {row['variant']} {row['flags']}"
        folder = flags.dump_dir / "".join(letter if letter.isalnum() else "_" for letter in name)
        xla_flags.append(f"--xla_dump_to={folder}")
        xla_flags.append("--xla_dump_hlo_as_text")
        xla_flags.append(f"--xla_dump_hlo_module_re={_DUMPED_PROGRAMS}")
    return {
        **os.environ,
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # several processes share the GPU
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "XLA_FLAGS": " ".join(xla_flags).strip(),
    }


def run_batch(
    processes: list[RowProcess],
    start_next: Callable[[], list[RowProcess]],
    deadline: float,
    write: Callable[[dict], None],
) -> list[RowProcess]:
    """Lets the processes compile at the same time and measure one after the other.

    Args:
        processes: the processes of the batch.
        start_next: a function that starts the next batch and returns its processes, which build
            while these measure.
        deadline: the time, by time.monotonic, at which unfinished rows are stopped.
        write: a function that writes a finished row.

    Returns:
        The processes of the next batch.
    """
    built = []
    compiled = []
    failed = []
    for process in processes:
        is_built = process.next_report(deadline) == "built"
        (built if is_built else failed).append(process)
        process.resume()
    for process in built:
        is_compiled = process.next_report(deadline) == "compiled"
        (compiled if is_compiled else failed).append(process)
    next_processes = start_next()
    for process in compiled:
        process.resume()
        report = process.next_report(deadline)
        if report:
            write(json.loads(report))
            process.stop()
        else:
            failed.append(process)
    for process in failed:
        is_late = time.monotonic() > deadline
        log = process.stop()
        write(process.row | {"error": "no time left" if is_late else log})
    return next_processes


def run_one(row: dict, is_toy: bool):
    """Measures the row of this process, and reports to its parent."""

    def wait(report: str):
        print(f"{_REPORT_MARK}{report}", flush=True)
        sys.stdin.readline()

    try:
        finished = measure(row, is_toy, wait)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    print(f"{_REPORT_MARK}{json.dumps(finished)}", flush=True)


def print_table(rows: list[dict]):
    """Prints the rows as a table."""
    print(
        "\n| model | layers | length | variant | settings | ms | kernels | first, s | GB | loss |"
    )
    print("|---|--:|--:|---|---|--:|--:|--:|--:|--:|")
    for row in rows:
        checks = [row[name] for name in ("errors", "mask_differences") if name in row]
        print(f"| {' | '.join(map(str, list_cells(row)))} |", *checks, flush=True)


def list_cells(row: dict) -> list:
    """Returns the cells of a row of the table; an error takes the place of the results."""
    settings = [f"{name}={row[name]}" for name in ("dropout", "vocab_size") if name in row]
    cells = [row["size"], row["layers"], row["length"], row["variant"]]
    cells.append(" ".join([row["flags"], *settings]))
    if "error" in row:
        lines = row["error"].strip().splitlines()
        return [*cells, lines[-1] if lines else "no message"]
    return [
        *cells,
        f"{row['milliseconds']:.2f}",
        f"{row.get('kernel_milliseconds', 0):.2f}",
        row["first_secs"],
        f"{row['peak_bytes'] / 1e9:.1f}",
        f"{row['losses'][-1]:.4f}",
    ]


def choose_batches(flags: argparse.Namespace) -> list[list[dict]]:
    """Returns the batches of the flags, without the rows that are finished."""
    batches = [batch for stage in flags.stage for batch in STAGES[stage]]
    batches.append([describe_row(**row) for row in flags.rows])
    finished = [row for row in read_rows(flags.output) if "error" not in row]

    def is_finished(row: dict) -> bool:
        return any(row.items() <= other.items() for other in finished)

    batches = [[row for row in batch if not is_finished(row)] for batch in batches]
    return [batch for batch in batches if batch]


def read_rows(path: pathlib.Path) -> list[dict]:
    """Returns the rows of a file, none if it is missing."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=[], help="stages to measure")
    parser.add_argument(
        "--rows",
        nargs="+",
        type=json.loads,
        default=[],
        help="""arguments of describe_row for the rows of one more batch, such as
        '{"variant": "hash qkv", "layers": 12}'""",
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the finished rows"
    )
    parser.add_argument(
        "--max_minutes",
        type=float,
        default=13.0,
        help="minutes after which unfinished rows are stopped",
    )
    parser.add_argument(
        "--cache_dir",
        type=pathlib.Path,
        help="folder for what XLA tunes (default: --output with the suffix .cache)",
    )
    parser.add_argument("--dump_dir", type=pathlib.Path, help="folder for XLA's dumps of programs")
    parser.add_argument(
        "--toy",
        action="store_true",
        help=f"try the script on the CPU, with {TOY_BATCH_SIZE} texts of {TOY_LENGTH} tokens",
    )
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    flags = parse_flags()
    if flags.one:
        run_one(flags.one, flags.toy)
        return
    flags.cache_dir = (flags.cache_dir or flags.output.with_suffix(".cache")).absolute()
    flags.cache_dir.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * flags.max_minutes
    batches = iter(choose_batches(flags))

    def write(row: dict):
        with flags.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print_table([row])

    def start_next() -> list[RowProcess]:
        if time.monotonic() > deadline:
            return []
        return [RowProcess(row, flags) for row in next(batches, [])]

    processes = start_next()
    while processes:
        processes = run_batch(processes, start_next, deadline, write)
    print_table(read_rows(flags.output))


if __name__ == "__main__":
    main()
