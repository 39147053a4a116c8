#!/usr/bin/env python3
"""Counts the padding of batches, and from it what sequences without padding could gain at most.

In: a folder of real data and an uncased vocabulary. Out: a table. For pre-training the batches have one length, as the
records do; for evaluation both that of --max_seq_length and, with --length_aware_batches, that of the longest example
of a batch of examples of similar length.

The bound is the model's floating-point operations for the padded batches, over those for sequences of their own
lengths: what an implementation would gain whose products run at the same rate and which loses nothing by packing.

    python benchmarks/padding.py --data=data --vocab_file=vocab.txt --work_dir=work
"""

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from pretraining_variants import script

from official_bert.config import BertConfig
from official_bert.data.records.framing import read_examples
from official_bert.modeling.flops import forward_flops
from official_bert.tasks import registry
from official_bert.tasks.base import DataFiles
from official_bert.tokenization import FullTokenizer
from official_bert.training.batches import padded_length

BATCH_SIZE = 32
SIZES = {"4/256": (4, 256), "12/768": (12, 768)}
EVALUATED = {  # the name in the table: the task, its set in the data folder, --max_seq_length
    "CoLA": ("CoLA", "glue/CoLA/dev.tsv", 128),
    "SST-2": ("SST-2", "glue/SST-2/dev.tsv", 128),
    "STS-B": ("STS-B", "glue/STS-B/dev.tsv", 128),
    "SQuAD 1.1": ("squad", "squad/dev-v1.1.json", 384),
}
PRETRAINED = {512: 76, 128: 20}  # --max_seq_length: --max_predictions_per_seq


def config_of(size: str) -> BertConfig:
    num_layers, hidden = SIZES[size]
    heads = hidden // 64
    return BertConfig(30_522, hidden, num_layers, heads, 4 * hidden)


def bound(config: BertConfig, lengths: np.ndarray, padded: np.ndarray, num_predictions: int) -> float:
    """Returns the operations for the padded lengths, over those for the own lengths."""

    def flops(found: np.ndarray) -> int:
        values, counts = np.unique(found, return_counts=True)
        pairs = zip(values.tolist(), counts.tolist(), strict=True)
        return sum(forward_flops(config, count, length, num_predictions) for length, count in pairs)

    return flops(padded) / flops(lengths)


def length_aware(lengths: np.ndarray, max_length: int) -> np.ndarray:
    """Returns the padded length of each example in batches of examples of similar length."""
    ordered = np.sort(lengths)[::-1]
    starts = range(0, len(ordered), BATCH_SIZE)
    batches = [ordered[start : start + BATCH_SIZE] for start in starts]
    padded = [np.full(len(batch), padded_length(int(batch[0]), max_length)) for batch in batches]
    return np.concatenate(padded)


def record_lengths(data: pathlib.Path, work_dir: pathlib.Path, vocab: str, length: int) -> np.ndarray:
    """Returns the lengths of pre-training records of Wikipedia with the default --short_seq_prob, 0.1."""
    records = work_dir / f"padding_{length}.tfrecord"
    flags = {"input_file": data / "corpus/wiki_00.txt", "output_file": records, "vocab_file": vocab}
    flags |= {"max_seq_length": length, "max_predictions_per_seq": PRETRAINED[length], "dupe_factor": 2}
    subprocess.run(script("create_pretraining_data", **flags, random_seed=1), check=True)
    return np.array([sum(example["input_mask"]) for _, example in read_examples(str(records))])


def example_lengths(data: pathlib.Path, vocab: str, task_name: str, file: str, length: int) -> np.ndarray:
    """Returns the lengths of the examples of a dev set, windows in SQuAD."""
    tokenizer = FullTokenizer(vocab)
    task = registry.make_task(task_name, {"max_query_length": 64, "doc_stride": 128})
    data_files = DataFiles(str((data / file).parent), {"dev": str(data / file)})
    (examples,) = task.read(data_files, "dev").values()
    return np.asarray(task.encode(examples, tokenizer, length, "dev").lengths)


def rows_of(flags) -> Iterator[tuple[str, int, str, np.ndarray, np.ndarray, int]]:
    """Yields what, --max_seq_length, the kind of batches, lengths, padded lengths and the number of predictions."""
    for length, num_predictions in PRETRAINED.items():
        lengths = record_lengths(flags.data, flags.work_dir, flags.vocab_file, length)
        yield (
            "pre-training, Wikipedia",
            length,
            "fixed",
            lengths,
            np.full(len(lengths), length),
            num_predictions,
        )
    for name, (task_name, file, length) in EVALUATED.items():
        lengths = example_lengths(flags.data, flags.vocab_file, task_name, file, length)
        yield f"evaluation, {name}", length, "fixed", lengths, np.full(len(lengths), length), 0
        yield f"evaluation, {name}", length, "length-aware", lengths, length_aware(lengths, length), 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with glue, squad and corpus")
    parser.add_argument("--vocab_file", required=True, help="Google's uncased vocabulary")
    parser.add_argument("--work_dir", type=pathlib.Path, required=True, help="folder for the records")
    flags = parser.parse_args()
    flags.work_dir.mkdir(parents=True, exist_ok=True)

    titles = " | ".join(f"bound at {size}" for size in SIZES)
    print(f"| what | length | batches | padding | {titles} |\n|---|--:|---|--:|{'--:|' * len(SIZES)}")
    for what, length, kind, lengths, padded, num_predictions in rows_of(flags):
        share = 1.0 - lengths.sum() / padded.sum()
        bounds = [bound(config_of(size), lengths, padded, num_predictions) for size in SIZES]
        cells = " | ".join(f"{value:.2f}x" for value in bounds)
        print(f"| {what} | {length} | {kind} | {share:.1%} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
