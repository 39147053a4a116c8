#!/usr/bin/env python3
"""What few bits cost a model of late interaction: quality and memory of a search.

    python benchmarks/token_vectors.py pairs --data=data --output=/tmp/pairs
    official-bert run_late_interaction --model=minilm --data_dir=/tmp/pairs --do_train ...
    python benchmarks/token_vectors.py measure --data=data --model=/tmp/colbert

`pairs` writes the questions of the SQuAD training subset with their paragraphs. `measure` prints a
row for each number of bits: nDCG@10 (times 100) of questions of SQuAD (dev 1.1) among its
paragraphs, with MaxSim of all paragraphs and of 200 candidates, and the kilobytes of a paragraph
without the centroids.
"""

import argparse
import json
import os
import pathlib
import time
from collections.abc import Sequence

import numpy as np
from small_vectors import read_questions

_K, _NUM_CANDIDATES = 10, 200


def write_pairs(data: pathlib.Path, output: pathlib.Path):
    """Writes train.jsonl: a question and its paragraph in each line."""
    path = data / "squad" / "train-v1.1-subset.json"
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    output.mkdir(parents=True, exist_ok=True)
    with (output / "train.jsonl").open("w", encoding="utf-8") as file:
        for article in articles:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    row = {"anchor": question["question"], "positive": paragraph["context"]}
                    file.write(json.dumps(row) + "\n")


def measure(arguments: argparse.Namespace):
    from official_bert import MultiVectorEncoder
    from official_bert.extensions.late_interaction.token_vectors import search

    encoder = MultiVectorEncoder(arguments.model, max_seq_length=arguments.max_seq_length)
    path = os.path.join(arguments.data, "squad", "dev-v1.1.json")
    questions, paragraphs, answers = read_questions(path)
    paragraphs = paragraphs[: arguments.num_paragraphs]
    pairs = [pair for pair in zip(questions, answers, strict=True) if pair[1] < len(paragraphs)]
    questions, answers = zip(*pairs[: arguments.num_queries], strict=True)
    queries = encoder.encode_query(list(questions))
    documents = encoder.encode(paragraphs)
    for bits in (32, 8, 4, 2):
        start = time.perf_counter()
        vectors = documents if bits == 32 else documents.quantize(bits)
        row = {"bits": bits, "quantize_secs": round(time.perf_counter() - start, 1)}
        row["kilobytes"] = round(vectors.num_bytes / 1000 / len(vectors), 2)
        if vectors.codec is not None:
            row["centroid_megabytes"] = round(vectors.codec.centroids.nbytes / 1e6, 2)
        for name, count in (("all", len(vectors)), ("candidates", _NUM_CANDIDATES)):
            rankings = search(queries, vectors, _K, count)
            row[f"ndcg_{name}"] = round(100 * ndcg(rankings, answers), 2)
        print(json.dumps(row), flush=True)


def ndcg(rankings: list, answers: Sequence[int]) -> float:
    """nDCG@10 of queries with one right answer each."""
    gains = []
    for ranking, answer in zip(rankings, answers, strict=True):
        rows = [row for row, _ in ranking]
        gains.append(1 / np.log2(2 + rows.index(answer)) if answer in rows else 0.0)
    return float(np.mean(gains))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=("pairs", "measure"))
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with squad")
    parser.add_argument("--output", type=pathlib.Path, help="of pairs: the folder to write")
    parser.add_argument("--model", help="of measure: a model of late interaction")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--num_queries", type=int, default=300)
    parser.add_argument("--num_paragraphs", type=int, default=2067)
    arguments = parser.parse_args()
    if arguments.mode == "pairs":
        write_pairs(arguments.data, arguments.output)
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
