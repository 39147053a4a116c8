"""What small vectors cost and gain: quality by MiniLM, and seconds of a search beside faiss.

    python benchmarks/small_vectors.py quality --model=minilm --data=../shared/data
    python benchmarks/small_vectors.py search --faiss_python=venv/bin/python

`quality` prints a row for each type and width: nDCG@10 of 1,000 questions of SQuAD (dev 1.1) among
all its paragraphs, and Spearman times 100 on the test set of STS-B. `search` makes random vectors
of norm 1 and prints the seconds of a search for the ten nearest: the lowest and the median of
--num_rounds, in which both sides take turns. faiss runs in another interpreter, with its flat
indexes and the same number of threads. One interpreter waits while the other one searches.
"""

import argparse
import contextlib
import csv
import gzip
import json
import os
import subprocess
import tempfile
import time

import numpy as np

_K = 10
_FAISS = """
import sys, time, numpy, faiss
vectors = numpy.load(sys.argv[1], mmap_mode="r")
queries = numpy.load(sys.argv[2])
kind = sys.argv[3]
faiss.omp_set_num_threads(int(sys.argv[4]))
width = vectors.shape[1]
if kind == "binary":
    index = faiss.IndexBinaryFlat(width)
    signs = lambda x: numpy.packbits(x > 0, axis=-1)
    for start in range(0, len(vectors), 100000):
        index.add(signs(vectors[start:start + 100000]))
    asked = signs(queries)
else:
    index = faiss.IndexFlatIP(width)
    if kind == "int8":
        index = faiss.IndexScalarQuantizer(
            width, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
        index.train(numpy.ascontiguousarray(vectors[:10000]))
    for start in range(0, len(vectors), 100000):
        index.add(numpy.ascontiguousarray(vectors[start:start + 100000]))
    asked = queries
print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    index.search(asked[:int(line)], 40 if kind == "binary" else 10)
    print(time.perf_counter() - start, flush=True)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("quality", "search"))
    parser.add_argument("--model")
    parser.add_argument("--data")
    parser.add_argument("--faiss_python", help="an interpreter that has faiss-cpu")
    parser.add_argument("--num_vectors", type=int, default=1_000_000)
    parser.add_argument("--num_queries", type=int, default=100)
    parser.add_argument("--num_rounds", type=int, default=7)
    arguments = parser.parse_args()
    if arguments.mode == "quality":
        measure_quality(arguments.model, arguments.data)
    else:
        measure_search(arguments)


def make_index(vectors: np.ndarray, kind: str, width: int | None = None):
    """Makes an index of vectors without texts."""
    from official_bert.extensions.retrieval.index import Index
    from official_bert.extensions.retrieval.small_vectors import BlockEncoder

    encoded = BlockEncoder(kind, width)
    for start in range(0, len(vectors), 10_000):
        encoded.add(np.asarray(vectors[start : start + 10_000]))
    blocks = encoded.finish()
    return Index(range(len(vectors)), np.concatenate(blocks), ranges=encoded.ranges)


def measure_quality(model: str, data: str):
    from official_bert import SentenceEncoder

    encoder = SentenceEncoder(model)
    pairs = []
    with gzip.open(os.path.join(data, "sts", "stsbenchmark.tsv.gz"), "rt") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row.get("split") == "test":
                pairs.append((row["sentence1"], row["sentence2"], float(row["score"])))
    questions, paragraphs, answers = read_questions(os.path.join(data, "squad", "dev-v1.1.json"))
    scores = [score for _, _, score in pairs]
    first = encoder.encode([a for a, _, _ in pairs])
    second = encoder.encode([b for _, b, _ in pairs])
    corpus = encoder.encode(paragraphs)
    queries = encoder.encode(questions)
    for kind in ("float32", "int8", "binary"):
        for width in (None, 256, 128, 64):
            print(
                json.dumps(
                    {
                        "kind": kind,
                        "width": width or corpus.shape[1],
                        "bytes": make_index(corpus, kind, width).vectors[0].nbytes,
                        "ndcg_at_10": ndcg(make_index(corpus, kind, width), queries, answers),
                        "spearman": spearman(first, second, scores, kind, width),
                    }
                ),
                flush=True,
            )


def read_questions(path: str) -> tuple[list, list, list]:
    """Returns 1,000 questions, all paragraphs, and the paragraph of each question."""
    with open(path, encoding="utf-8") as file:
        articles = json.load(file)["data"]
    pairs, paragraphs = [], []
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                pairs.append((question["question"], len(paragraphs)))
            paragraphs.append(paragraph["context"])
    chosen = np.random.default_rng(0).permutation(len(pairs))[:1000]
    return [pairs[i][0] for i in chosen], paragraphs, [pairs[i][1] for i in chosen]


def ndcg(index, queries: np.ndarray, answers: list) -> float:
    """nDCG@10 of queries with one right answer each."""
    _, rows = index.search(queries, _K)
    gains = [
        1 / np.log2(2 + ranked.tolist().index(answer)) if answer in ranked else 0.0
        for ranked, answer in zip(rows, answers, strict=True)
    ]
    return float(np.mean(gains))


def spearman(first, second, scores, kind: str, width: int | None) -> float:
    """Spearman times 100 of pairs: the first text is a query, the second one is stored."""
    from official_bert.extensions.retrieval.small_vectors import decode_binary
    from official_bert.metrics.embeddings import sts

    index = make_index(second, kind, width)
    stored = decode_binary(index.vectors) if kind == "binary" else index._rows[:]
    return 100 * sts(first[:, : index.width], stored, np.array(scores))["spearman"]


def measure_search(arguments: argparse.Namespace):
    num_vectors, num_queries = arguments.num_vectors, arguments.num_queries
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vectors.npy")
        vectors = np.lib.format.open_memmap(path, "w+", np.float32, (num_vectors, 384))
        draws = np.random.default_rng(0)
        for start in range(0, num_vectors, 100_000):
            block = draws.normal(size=(min(100_000, num_vectors - start), 384))
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            vectors[start : start + len(block)] = block
        queries = draws.normal(size=(num_queries, 384)).astype(np.float32)
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        queries_path = os.path.join(folder, "queries.npy")
        np.save(queries_path, queries)
        for kind in ("float32", "int8", "binary"):
            command = [path, queries_path, kind, str(os.cpu_count())]
            with start_faiss(arguments.faiss_python, command) as faiss:
                measure_kind(vectors, queries, kind, faiss, arguments.num_rounds)


@contextlib.contextmanager
def start_faiss(python: str | None, command: list[str]):
    """Yields a function of a number of queries that returns the seconds of faiss; None without."""
    if not python:
        yield None
        return
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([python, "-c", _FAISS, *command], **pipes) as process:
        assert process.stdout.readline() == "ready\n"

        def search(count: int) -> float:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield search


def measure_kind(vectors: np.ndarray, queries: np.ndarray, kind: str, faiss, num_rounds: int):
    """Prints the seconds of both sides for one query and for all."""
    index = make_index(vectors, kind)

    def search(count: int) -> float:
        start = time.perf_counter()
        index.search(queries[:count], _K)
        return time.perf_counter() - start

    sides = {"ours": search} | ({"faiss": faiss} if faiss else {})
    for count in (1, len(queries)):
        secs = {name: [] for name in sides}
        search(count)  # which computes the norms, once for an index
        for _ in range(num_rounds):
            for name, search_side in sides.items():
                secs[name].append(search_side(count))
        row = {"kind": kind, "megabytes": round(index.vectors.nbytes / 1e6), "queries": count}
        for name, values in secs.items():
            row |= {name: round(min(values), 4), f"{name}_median": round(np.median(values), 4)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
