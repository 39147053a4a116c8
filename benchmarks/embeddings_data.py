"""The data of embeddings.py: pairs that train and measure embeddings, and examples for losses.

In: the folder of real data, with sts, sick, squad and corpus. Out: lists of dicts, an example
each.
"""

import gzip
import json
import pathlib
import random

NUM_SENTENCES, FEWEST_WORDS = 100_000, 6
NUM_NEGATIVES_PAIRS = 4096
SIMILAR_FROM = 0.6  # the score, from 0 to 1, from which on a pair counts as one of similar texts


def sts_benchmark(data: pathlib.Path, split: str) -> list[dict]:
    """Returns the pairs of a split of STS-B, with scores from 0 to 1."""
    with gzip.open(data / "sts" / "stsbenchmark.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [_pair(row[6], row[7], float(row[5]) / 5) for row in rows if row[0] == split]


def sick(data: pathlib.Path, part: str, *judgments: str) -> list[dict]:
    """Returns the pairs of a part of SICK, all or those of some judgments, with scores from 0 to
    1.
    """
    lines = (data / "sick" / f"SICK_{part}.txt").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return [
        _pair(row[1], row[2], (float(row[3]) - 1) / 4)
        for row in rows
        if not judgments or row[4] in judgments
    ]


def test_pairs(data: pathlib.Path, name: str) -> list[dict]:
    """Returns the pairs that measure vectors; those of a year of STS are those of all its files
    with a score.
    """
    if name == "STS-B":
        return sts_benchmark(data, "test")
    if name == "SICK":
        return sick(data, "trial")
    paths = sorted((data / "sts").glob(f"20{name[3:]}.*.test.tsv"))
    rows = [
        line.split("\t")
        for path in paths
        for line in path.read_text(encoding="utf-8").split("\n")
        if line
    ]
    return [_pair(row[1], row[2], float(row[0]) / 5) for row in rows if row[0]]


def training_pairs(data: pathlib.Path, name: str) -> list[dict]:
    """Returns the pairs of a training; those of simcse are a sentence twice."""
    if name == "Wikipedia":
        lines = (
            line
            for path in sorted((data / "corpus").glob("wiki_*.txt"))
            for line in path.open(encoding="utf-8")
        )
        sentences = sorted({line.strip() for line in lines if len(line.split()) >= FEWEST_WORDS})
        return [
            _pair(text, text, 0.0) for text in random.Random(0).sample(sentences, NUM_SENTENCES)
        ]
    return sts_benchmark(data, "train") if name == "STS-B" else sick(data, "train", "ENTAILMENT")


def answered_questions(data: pathlib.Path) -> list[dict]:
    """Returns questions of SQuAD, drawn once, each with the sentence of its answer."""
    articles = json.loads((data / "squad" / "dev-v1.1.json").read_text(encoding="utf-8"))["data"]
    pairs = {}
    for paragraph in (one for article in articles for one in article["paragraphs"]):
        text = paragraph["context"].replace("\n", " ")
        for question in paragraph["qas"]:
            place = question["answers"][0]["answer_start"]
            start, end = text.rfind(". ", 0, place), text.find(". ", place)
            pairs[question["question"].strip()] = text[
                start + 2 if start >= 0 else 0 : end + 1 if end >= 0 else None
            ]
    listed = [{"anchor": question, "positive": answer} for question, answer in pairs.items()]
    return random.Random(0).sample(listed, NUM_NEGATIVES_PAIRS)


def _pair(first: str, second: str, score: float) -> dict:
    return {"sentence1": first, "sentence2": second, "label": score}


def loss_examples(data: pathlib.Path, name: str) -> list[dict]:
    """Returns examples for a loss; without scores no text occurs twice, since equal texts are no
    negatives in ours.
    """
    if name.startswith("cos") or name == "angle":
        return sts_benchmark(data, "train")
    if name.endswith("contrastive"):
        pairs = sts_benchmark(data, "train")
        return [pair | {"label": float(pair["label"] >= SIMILAR_FROM)} for pair in pairs]
    different, seen = {}, set()
    for judgment in ("ENTAILMENT", "CONTRADICTION"):
        for pair in sick(data, "train", judgment):
            if (
                not seen & {pair["sentence1"], pair["sentence2"]}
                and pair["sentence1"] != pair["sentence2"]
            ):
                seen |= {pair["sentence1"], pair["sentence2"]}
                different.setdefault(judgment, {})[pair["sentence1"]] = pair["sentence2"]
    positives, negatives = different["ENTAILMENT"], different["CONTRADICTION"]
    if name in ("mse", "simcse"):
        return [{"anchor": text} for text in positives]
    if name in ("triplet", "multiple_negatives_ranking, hard negatives"):
        return [
            {"anchor": anchor, "positive": positive, "negative": negative}
            for (anchor, positive), negative in zip(positives.items(), negatives, strict=False)
        ]
    return [{"anchor": anchor, "positive": positive} for anchor, positive in positives.items()]


def write_lines(path: pathlib.Path, examples: list[dict]) -> pathlib.Path:
    path.write_text("".join(json.dumps(example) + "\n" for example in examples), encoding="utf-8")
    return path
