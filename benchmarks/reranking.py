#!/usr/bin/env python3
"""Compares rerankers with CrossEncoder of sentence-transformers on PyTorch: losses and quality.

In: TREC answer selection, and the folder of an encoder. Out: tables, and a line of JSON in --output
for each finished run. Runs that this file already contains are not repeated; each is a process of
its own.

    python benchmarks/reranking.py losses --data=data --model=minilm --work_dir=work \
        --output=reranking.jsonl

`losses`: 50 updates of each loss from the same weights on the same documents in the same order,
without dropout. The classes of sentence-transformers are trained with the original's optimizer of
finetuning_losses.py. Each side has its own tokenizer.
`quality`: one epoch on the pairs of the training set with binary_cross_entropy. Our side is the
script that users run, with the optimizer of sentence-transformers; theirs is the usual loop: AdamW
with bias correction, a linear schedule with warm-up, clipping at norm 1. Our metrics score both.
"""

import argparse
import csv
import itertools
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from embeddings_data import write_lines
from embeddings_steps import (
    LEARNING_RATE,
    THEIR_OPTIMIZER,
    adamw,
    original_adam,
    our_losses,
)
from result_rows import measure_missing

LOSSES = {  # by name: the class of theirs
    "binary_cross_entropy": "BinaryCrossEntropyLoss",
    "multiple_negatives_ranking": "MultipleNegativesRankingLoss",
    "margin_mse": "MarginMSELoss",
    "mse": "MSELoss",
    "rank_net": "RankNetLoss",
    "list_net": "ListNetLoss",
    "lambda_loss": "LambdaLoss",
}
SIDES = ("ours", "theirs")
METRICS = ("ndcg_at_10", "mrr_at_10", "map")
NUM_STEPS, NUM_DOCUMENTS, TARGET = 50, 8, 1e-5
LIST_SIZE, LOSS_LENGTH = 4, 128  # of the comparison of losses
BATCH_SIZE, MAX_LENGTH, NUM_SEEDS = 32, 64, 3
_NO_DROPOUT = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
}


def read_pairs(flags, name: str) -> list[dict]:
    """Returns the questions and sentences of TREC answer selection with their labels."""
    with (flags.data / "ranking" / f"wang_{name}.csv").open(encoding="utf-8", newline="") as file:
        return [
            {"query": row["qtext"], "document": row["atext"], "label": int(row["label"])}
            for row in csv.DictReader(file)
        ]


def make_start(flags, folder: str, config: dict) -> pathlib.Path:
    """Writes the encoder with a new head of one score, which both sides load."""
    from official_bert import BertClassifier, FullTokenizer

    path = pathlib.Path(folder) / "start"
    model = BertClassifier.from_pretrained(str(flags.model), num_outputs=1)
    shape = model.output_weights.shape
    model.output_weights.assign(np.random.default_rng(0).normal(scale=0.02, size=shape))
    tokenizer = FullTokenizer.from_pretrained(str(flags.model))
    model.save_pretrained(str(path), format="huggingface", tokenizer=tokenizer)
    content = json.loads((path / "config.json").read_text(encoding="utf-8"))
    (path / "config.json").write_text(json.dumps(content | config), encoding="utf-8")
    return path


def loss_rows(flags, name: str) -> list[dict]:
    """Returns rows of JSON lines for a loss; no document is in two of them."""
    pairs = read_pairs(flags, "train")
    draws = np.random.default_rng(1)
    seen, queries = set(), {}
    for pair in pairs:
        if pair["document"] not in seen:
            seen.add(pair["document"])
            queries.setdefault(pair["query"], []).append(pair)
    rows = []
    for query, query_pairs in queries.items():
        right = [one["document"] for one in query_pairs if one["label"]]
        wrong = [one["document"] for one in query_pairs if not one["label"]]
        if name in ("binary_cross_entropy", "mse"):
            rows += query_pairs
        elif name == "margin_mse":
            for positive, *negatives in zip(right, wrong[::2], wrong[1::2], strict=False):
                scores = draws.normal(size=3).tolist()
                row = {"query": query, "positive": positive, "negative": negatives}
                rows.append(row | {"score": scores})
        elif name == "multiple_negatives_ranking":
            if right and wrong:
                rows.append({"query": query, "positive": right[0], "negative": wrong[:1]})
        elif right and wrong:
            some = right[:2] + wrong[: LIST_SIZE - 2]
            labels = [2.0 - number for number in range(len(right[:2]))] + [0.0] * len(wrong)
            rows.append({"query": query, "document": some, "score": labels[: len(some)]})
    return rows


def losses_run(flags, name: str) -> dict:
    from official_bert.data.text_tables import read_examples
    from official_bert.extensions.reranking.rankings import read_ranking
    from official_bert.extensions.reranking.settings import RerankingSettings
    from official_bert.extensions.reranking.task import RerankingTask
    from official_bert.tokenization import FullTokenizer

    draws = np.random.default_rng(0)
    is_in_batch = name == "multiple_negatives_ranking"
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as folder:
        flags.model = make_start(flags, folder, _NO_DROPOUT)
        path = write_lines(pathlib.Path(folder) / "train.jsonl", loss_rows(flags, name))
        examples = read_examples(str(path), "train_file", {})
        rankings = [read_ranking(example) for example in examples]
        num_documents = max(len(ranking.documents) for ranking in rankings)
        batch_size = 3 if is_in_batch else NUM_DOCUMENTS // num_documents
        # All other documents of the batch.
        num_negatives = (batch_size - 1) * num_documents
        task = RerankingTask(settings=RerankingSettings(loss=name, num_negatives=num_negatives))
        tokenizer = FullTokenizer.from_pretrained(str(flags.model))
        encoded = task.encode(examples, tokenizer, LOSS_LENGTH, "train")
        assert len(encoded.queries) == len(rankings), "each row is an example"
        batches, batch_rows = [], []
        for _ in range(NUM_STEPS):
            rows = draws.choice(len(rankings), batch_size, replace=False)
            batches.append(encoded.features(rows, int(encoded.lengths[rows].max())))
            batch_rows.append([rankings[row] for row in rows])
        ours, _ = our_losses(flags, task, batches, dropout=True)  # the config has none
        theirs = their_losses(flags, name, batch_rows)
    return {
        "difference": float(np.abs(np.subtract(ours, theirs)).max()),
        "ours": ours,
        "theirs": theirs,
    }


def their_model(folder: pathlib.Path, max_length: int):
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return CrossEncoder(str(folder), num_labels=1, max_length=max_length)


def their_losses(flags, name: str, batches: list[list]) -> list[float]:
    """Returns the loss of sentence-transformers before each update."""
    import torch
    from sentence_transformers.cross_encoder import losses

    model = their_model(flags.model, LOSS_LENGTH)
    arguments = {"num_negatives": None} if name == "multiple_negatives_ranking" else {}
    if name in ("rank_net", "list_net", "lambda_loss"):
        arguments = {"mini_batch_size": -1}
    compute_loss = getattr(losses, LOSSES[name])(model, **arguments)
    update = original_adam(model, len(batches))
    model.train()
    values = []
    for batch in batches:
        queries = [ranking.query for ranking in batch]
        documents = [[one.text for one in ranking.documents] for ranking in batch]
        labels = [torch.tensor(ranking.labels) for ranking in batch]
        if name in ("rank_net", "list_net", "lambda_loss"):
            loss = compute_loss([queries, documents], labels)
        else:
            columns = [list(column) for column in zip(*documents, strict=True)]
            loss = compute_loss([queries, *columns], torch.stack(labels))
        loss.backward()
        update()
        values.append(loss.item())
    return values


def quality_run(flags, side: str, seed: int) -> dict:
    """Trains a reranker of a side, and returns the metrics of the development set times 100."""
    train, dev = read_pairs(flags, "train")[: flags.num_pairs], read_pairs(flags, "dev")
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as folder:
        start = time.perf_counter()
        if side == "ours":
            metrics = our_training(flags, pathlib.Path(folder), train, dev, seed)
        else:
            metrics = their_training(flags, train, dev, seed)
        secs = time.perf_counter() - start
    return {name: 100 * metrics[f"eval_{name}"] for name in METRICS} | {"secs": secs}


def our_training(flags, folder: pathlib.Path, train: list, dev: list, seed: int) -> dict:
    from official_bert.extensions.reranking.options import RerankerOptions
    from official_bert.fine_tuning.run import fine_tune

    fine_tune(
        RerankerOptions(
            train_file=str(write_lines(folder / "train.jsonl", train)),
            dev_file=str(write_lines(folder / "dev.jsonl", dev)),
            vocab_file=str(flags.model / "vocab.txt"),
            bert_config_file=str(flags.model / "config.json"),
            init_checkpoint=str(flags.model),
            output_dir=str(folder / "output"),
            learning_rate=LEARNING_RATE,
            train_batch_size=BATCH_SIZE,
            eval_batch_size=BATCH_SIZE,
            max_seq_length=MAX_LENGTH,
            num_train_epochs=1.0,
            random_seed=seed,
            do_train=True,
            do_eval=True,
            save_checkpoints_steps=1_000_000,
            **THEIR_OPTIMIZER,
        )
    )
    lines = (folder / "output" / "eval_results.txt").read_text(encoding="utf-8").splitlines()
    values = dict(line.split(" = ") for line in lines)
    return {f"eval_{name}": float(values[f"eval_{name}"]) for name in METRICS}


def their_training(flags, train: list, dev: list, seed: int) -> dict:
    import torch
    from sentence_transformers.cross_encoder import losses

    from official_bert.extensions.reranking.evaluation import measure, select_rankings
    from official_bert.extensions.reranking.rankings import Document, Ranking, merge_queries

    torch.manual_seed(seed)
    model = their_model(flags.model, MAX_LENGTH)
    num_steps = -(-len(train) // BATCH_SIZE)
    compute_loss = losses.BinaryCrossEntropyLoss(model)
    update = adamw(model, num_steps)
    order = np.random.default_rng(seed).permutation(len(train))
    model.train()
    for step in range(num_steps):
        batch = [train[row] for row in order[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]]
        columns = [[pair[name] for pair in batch] for name in ("query", "document")]
        loss = compute_loss(columns, torch.tensor([pair["label"] for pair in batch]))
        loss.backward()
        update()
        if step % 20 == 0:
            print(f"step {step}/{num_steps} loss {loss.item():.4f}", file=sys.stderr, flush=True)
    model.eval()
    rows = [
        Ranking("", pair["query"], (Document(pair["document"], pair["label"]),)) for pair in dev
    ]
    queries, pairs, labels = [], [], []
    for number, ranking in enumerate(select_rankings(merge_queries(rows))):
        for document in ranking.documents:
            queries.append(number)
            pairs.append((ranking.query, document.text))
            labels.append(document.label)
    scores = model.predict(pairs, batch_size=BATCH_SIZE, activation_fn=torch.nn.Identity())
    return measure(np.array(queries), np.array(labels), scores)


def list_runs(flags) -> list[dict]:
    """Returns what identifies each run of a mode."""
    if flags.mode == "losses":
        return [{"loss": name} for name in LOSSES]
    return [
        {"seed": seed, "side": side} for seed, side in itertools.product(range(NUM_SEEDS), SIDES)
    ]


def one_run(flags, which: dict) -> dict:
    from finetuning import device_name

    if flags.mode == "losses":
        row = losses_run(flags, which["loss"])
    else:
        row = quality_run(flags, which["side"], which["seed"])
    return {"mode": flags.mode} | which | row | {"device": device_name()}


def print_tables(rows: list[dict]):
    """Prints a table for each mode that has rows."""
    loss_values = {row["loss"]: row for row in rows if row["mode"] == "losses"}
    if loss_values:
        print(
            "\n| loss | first loss | last loss | greatest difference | within 1e-5 "
            "|\n|---|--:|--:|--:|---|"
        )
    for name in LOSSES:
        if row := loss_values.get(name):
            verdict = "yes" if row["difference"] <= TARGET else "no"
            shown = f"{row['ours'][0]:.3g} | {row['ours'][-1]:.3g} | {row['difference']:.1e}"
            print(f"| {name} | {shown} | {verdict} |")
    print_quality([row for row in rows if row["mode"] == "quality"])


def print_quality(rows: list[dict]):
    """Prints the mean and the deviation of both sides over the seeds that both have."""
    sides = [{row["seed"]: row for row in rows if row["side"] == side} for side in SIDES]
    seeds = sorted(sides[0].keys() & sides[1].keys())
    if len(seeds) < 2:
        return
    print(
        "\n| metric | seeds | ours | sentence-transformers | difference | standard errors |"
        "\n|---|--:|--:|--:|--:|--:|"
    )
    for name in METRICS:
        values = [[side[seed][name] for seed in seeds] for side in sides]
        difference = statistics.mean(values[0]) - statistics.mean(values[1])
        error = sum(statistics.variance(side) / len(seeds) for side in values) ** 0.5
        shown = " | ".join(
            f"{statistics.mean(side):.2f} ± {statistics.stdev(side):.2f}" for side in values
        )
        print(
            f"| {name} | {len(seeds)} | {shown} | {difference:+.2f} | {difference / error:+.1f} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=("losses", "quality"))
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with ranking")
    parser.add_argument("--model", type=pathlib.Path, required=True, help="folder of an encoder")
    parser.add_argument(
        "--work_dir", type=pathlib.Path, required=True, help="folder for what is thrown away"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the runs"
    )
    parser.add_argument(
        "--num_pairs", type=int, help="of quality, to try it: how many pairs are trained on"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if flags.one:
        print(json.dumps(one_run(flags, json.loads(flags.one))), flush=True)
        return
    flags.work_dir.mkdir(parents=True, exist_ok=True)
    rows = measure_missing(__file__, flags.output, list_runs(flags), {"mode": flags.mode})
    print_tables(rows)


if __name__ == "__main__":
    main()
