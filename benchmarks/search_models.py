#!/usr/bin/env python3
"""Compares sparse and late-interaction models with those of sentence-transformers on PyTorch:
quality after a training, by seed.

In: questions of SQuAD and the sentences that answer them, and the folder of an encoder. Out: a
table, and a line of JSON in --output for each finished run. Runs that this file already contains
are not repeated; each is a process of its own.

    python benchmarks/search_models.py --data=data --model=minilm --work_dir=work \
        --output=search_models.jsonl

Each question has a wrong sentence, which the encoder finds (official-bert mine_hard_negatives). Both
sides start from the same weights, and make one epoch with dropout. Our side is the script that users
run, with the optimizer of sentence-transformers; theirs is the usual loop: AdamW with bias
correction, a linear schedule with warm-up, clipping at norm 1. Then each side searches other
questions' answers by its own functions. `start` is our search before the training.

The projection of late interaction starts with random weights. The sparse model starts with a masked
LM head whose logits are the products of the encoder's output with the embeddings of the words: the
encoder, which was trained for sentences, has no such head of its own.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from embeddings_data import answered_questions, write_lines
from embeddings_steps import LEARNING_RATE, THEIR_OPTIMIZER, WARMUP_PROPORTION, adamw
from result_rows import measure_missing

from official_bert.metrics.summaries import difference, summarize

KINDS = ("late interaction", "sparse")
SIDES = ("start", "ours", "theirs")
METRICS = {"ndcg_at_10": "nDCG@10", "first": "answer first"}
NUM_SEEDS, NUM_TRAINED, NUM_EVALUATED = 3, 768, 768
BATCH_SIZE, MAX_LENGTH, NUM_HITS = 16, 64, 10
TOKEN_WIDTH = 128
# Larger than the defaults, which are for trainings of thousands of updates: here there are 48.
_TRANSFORM, _OUTPUT_BIAS = "cls/predictions/transform/dense", "cls/predictions/output_bias"
OUTPUT_BIAS = -6.0  # leaves about a hundred words for a text
QUERY_FLOPS, DOCUMENT_FLOPS, FLOPS_WARMUP = 5e-4, 3e-4, 1 / 3


def mined_examples(flags) -> list[dict]:
    """Returns questions with their right and a wrong sentence; they are mined once."""
    from official_bert.extensions.retrieval import mining
    from official_bert.extensions.retrieval.options import MiningOptions

    pairs = answered_questions(flags.data)[:NUM_TRAINED]
    mined = flags.work_dir / "mined.jsonl"
    if not mined.exists():
        mining.run(
            MiningOptions(
                input_file=str(write_lines(flags.work_dir / "pairs.jsonl", pairs)),
                model=str(flags.model),
                output_file=str(mined),
                num_negatives=1,
                margin=0.05,
            )
        )
    examples = [json.loads(line) for line in mined.read_text(encoding="utf-8").splitlines()]
    return [example for example in examples if example["negative"]]


def evaluation_questions(flags) -> tuple[list[str], list[str], np.ndarray]:
    """Returns questions that nothing was trained on, sentences, and the row of each answer."""
    pairs = answered_questions(flags.data)[NUM_TRAINED : NUM_TRAINED + NUM_EVALUATED]
    sentences = list(dict.fromkeys(pair["positive"] for pair in pairs))
    answers = np.array([sentences.index(pair["positive"]) for pair in pairs])
    return [pair["anchor"] for pair in pairs], sentences, answers


def write_start(flags, kind: str, folder: pathlib.Path) -> tuple[str, str]:
    """Writes the model that both sides start from, and returns the folders of ours and theirs."""
    from official_bert.catalog import options_class
    from official_bert.checkpoints import (
        load_checkpoint,
        loading,
        named_variables,
        open_checkpoint,
    )
    from official_bert.commands import convert_checkpoint
    from official_bert.config import read_config
    from official_bert.extensions.late_interaction.model import BertMultiVectorEncoder
    from official_bert.extensions.late_interaction.multi_vector_folder import KERNEL
    from official_bert.extensions.sparse.settings import SparseSettings
    from official_bert.extensions.sparse.task import SparseTask
    from official_bert.model_dir import ModelFolder, TaskRecord, write_companion_files
    from official_bert.tokenizer_config import TokenizerConfig

    checkpoint = open_checkpoint(str(flags.model))
    config = read_config(ModelFolder(str(flags.model)).config_file, MAX_LENGTH)
    if kind == "sparse":
        name, task = "sparse_embedding", SparseTask(settings=SparseSettings())
        model, settings = task.build_model(config), task.settings()
    else:
        name = "late_interaction"
        model = BertMultiVectorEncoder(config, TOKEN_WIDTH)
        settings = {"token_width": TOKEN_WIDTH, "max_seq_length": MAX_LENGTH}
    load_checkpoint(model, checkpoint)
    weights = {name: one.numpy() for name, one in named_variables(model).items()}
    if kind == "sparse":
        # GELU leaves such large numbers as they are, and LayerNorm subtracts what they share.
        weights[f"{_TRANSFORM}/kernel"] = np.eye(config.hidden_size, dtype=np.float32)
        weights[f"{_TRANSFORM}/bias"][:] = 6.0
        weights[_OUTPUT_BIAS][:] = OUTPUT_BIAS
    else:
        shape = weights[KERNEL].shape
        weights[KERNEL] = np.float32(np.random.default_rng(0).normal(scale=0.02, size=shape))
    ours = folder / "start"
    ours.mkdir()
    loading.write(str(ours), weights, config)
    vocab_file = ModelFolder(str(flags.model)).vocab_file
    record = TaskRecord(name, name, settings)
    write_companion_files(str(ours), vocab_file, TokenizerConfig(), record)
    options = options_class("convert_checkpoint")(
        model=str(ours), output_dir=str(folder / "theirs"), output_format="huggingface"
    )
    convert_checkpoint.run(options)
    return str(ours), str(folder / "theirs")


def our_search(flags, kind: str, folder: str) -> list[list[int]]:
    """Returns the rows of the best sentences for each question."""
    from official_bert import MultiVectorEncoder, SparseEncoder

    encoder_class, exact = {
        "late interaction": (MultiVectorEncoder, {"num_candidates": NUM_EVALUATED}),
        "sparse": (SparseEncoder, {}),
    }[kind]
    questions, sentences, _ = evaluation_questions(flags)
    encoder = encoder_class(folder)
    all_hits = encoder.search(questions, encoder.encode(sentences), k=NUM_HITS, **exact)
    return [[hit["row"] for hit in hits] for hits in all_hits]


def our_training(flags, kind: str, start: str, folder: pathlib.Path, seed: int) -> str:
    """Trains our side; returns the folder of the model."""
    from official_bert.extensions.late_interaction.options import LateInteractionOptions
    from official_bert.extensions.sparse.options import SparseOptions
    from official_bert.fine_tuning.run import fine_tune

    options, more = {
        "late interaction": (LateInteractionOptions, {}),
        "sparse": (
            SparseOptions,
            {
                "query_flops": QUERY_FLOPS,
                "document_flops": DOCUMENT_FLOPS,
                "flops_warmup": FLOPS_WARMUP,
            },
        ),
    }[kind]
    fine_tune(
        options(
            model=start,
            train_file=str(write_lines(folder / "train.jsonl", mined_examples(flags))),
            output_dir=str(folder / "output"),
            learning_rate=LEARNING_RATE,
            warmup_proportion=WARMUP_PROPORTION,
            num_train_epochs=1.0,
            train_batch_size=BATCH_SIZE,
            max_seq_length=MAX_LENGTH,
            random_seed=seed,
            do_train=True,
            save_checkpoints_steps=1_000_000,
            **more,
            **THEIR_OPTIMIZER,
        )
    )
    return str(folder / "output")


def their_search(flags, kind: str, start: str, seed: int):
    """Trains their side; returns the rows of the best sentences for each question."""
    import sentence_transformers
    import torch
    from sentence_transformers.multi_vector_encoder import losses as vector_losses
    from sentence_transformers.sparse_encoder import losses as sparse_losses

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(seed)
    if kind == "sparse":
        model = sentence_transformers.SparseEncoder(start, device="cpu")
        model.max_seq_length = MAX_LENGTH
        compute_loss = sparse_losses.SpladeLoss(
            model,
            sparse_losses.SparseMultipleNegativesRankingLoss(model),
            document_regularizer_weight=DOCUMENT_FLOPS,
            query_regularizer_weight=QUERY_FLOPS,
        )
    else:
        model = sentence_transformers.MultiVectorEncoder(start, device="cpu")
        compute_loss = vector_losses.MultiVectorMultipleNegativesRankingLoss(model)
    examples = mined_examples(flags)
    order = np.random.default_rng(seed).permutation(len(examples))
    num_steps = len(examples) // BATCH_SIZE
    update = adamw(model, num_steps)
    model.train()
    for step in range(num_steps):
        batch = [examples[row] for row in order[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]]
        texts = (
            ("query", [example["anchor"] for example in batch]),
            ("document", [example["positive"] for example in batch]),
            ("document", [example["negative"][0] for example in batch]),
        )
        columns = [model.preprocess(column, task=task) | {"task": task} for task, column in texts]
        share = min(1.0, step / max(1, int(num_steps * FLOPS_WARMUP))) ** 2
        if kind == "sparse":
            compute_loss.document_regularizer_weight = DOCUMENT_FLOPS * share
            compute_loss.query_regularizer_weight = QUERY_FLOPS * share
        loss = compute_loss(columns, None)
        loss = sum(loss.values()) if isinstance(loss, dict) else loss
        loss.backward()
        update()
        if step % 20 == 0:
            print(f"step {step}/{num_steps} loss {loss.item():.4f}", file=sys.stderr, flush=True)
    model.eval()
    questions, sentences, _ = evaluation_questions(flags)
    scores = model.similarity(model.encode_query(questions), model.encode_document(sentences))
    scores = scores.to_dense() if scores.is_sparse else scores
    return torch.topk(scores, NUM_HITS, dim=1).indices.tolist()


def score(hits: list[list[int]], answers: np.ndarray) -> dict[str, float]:
    """Returns nDCG@10 and the share of first places, times 100; each question has one answer."""
    gains, firsts = [], []
    for rows, answer in zip(hits, answers.tolist(), strict=True):
        place = rows.index(answer) if answer in rows else None
        gains.append(0.0 if place is None else 1 / np.log2(place + 2))
        firsts.append(place == 0)
    return {"ndcg_at_10": 100 * float(np.mean(gains)), "first": 100 * float(np.mean(firsts))}


def one_run(flags, which: dict) -> dict:
    from finetuning import device_name

    start_secs = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as name:
        folder = pathlib.Path(name)
        kind, side, seed = which["kind"], which["side"], which["seed"]
        ours, theirs = write_start(flags, kind, folder)
        if side == "theirs":
            hits = their_search(flags, kind, theirs, seed)
        else:
            model = ours if side == "start" else our_training(flags, kind, ours, folder, seed)
            hits = our_search(flags, kind, model)
    row = score(hits, evaluation_questions(flags)[2])
    return which | row | {"secs": time.perf_counter() - start_secs, "device": device_name()}


def list_runs() -> list[dict]:
    """Returns what identifies each run; both sides of a seed follow each other."""
    return [
        {"kind": kind, "seed": seed, "side": side}
        for kind, seed, side in itertools.product(KINDS, range(NUM_SEEDS), SIDES)
        if side != "start" or seed == 0
    ]


def print_table(rows: list[dict]):
    """Prints the mean and the deviation of both sides over the seeds that both have."""
    print(
        "| model | metric | seeds | start | ours | sentence-transformers | difference "
        "| standard errors |\n|---|---|--:|--:|--:|--:|--:|--:|"
    )
    for kind, metric in itertools.product(KINDS, METRICS):
        sides = {
            side: {
                row["seed"]: row[metric]
                for row in rows
                if (row["kind"], row["side"]) == (kind, side)
            }
            for side in SIDES
        }
        seeds = sorted(sides["ours"].keys() & sides["theirs"].keys())
        if len(seeds) < 2:
            continue
        ours, theirs = (
            summarize([sides[side][seed] for seed in seeds]) for side in ("ours", "theirs")
        )
        lead, num_errors = difference(theirs, ours)
        shown = " | ".join(f"{one.mean:.2f} ± {one.deviation:.2f}" for one in (ours, theirs))
        errors = "–" if num_errors is None else f"{num_errors:.1f}"
        start = f"{sides['start'][0]:.2f}" if sides["start"] else "–"
        name = METRICS[metric]
        print(f"| {kind} | {name} | {len(seeds)} | {start} | {shown} | {lead:+.2f} | {errors} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with squad")
    parser.add_argument("--model", type=pathlib.Path, required=True, help="folder of an encoder")
    parser.add_argument(
        "--work_dir", type=pathlib.Path, required=True, help="folder for what is thrown away"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the runs"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if flags.one:
        print(json.dumps(one_run(flags, json.loads(flags.one))), flush=True)
        return
    flags.work_dir.mkdir(parents=True, exist_ok=True)
    mined_examples(flags)
    rows = measure_missing(__file__, flags.output, list_runs(), {})
    print_table(rows)


if __name__ == "__main__":
    main()
