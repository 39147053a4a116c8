#!/usr/bin/env python3
"""Pre-trains a small BERT from scratch, with the same commands as a large one.

In: the English text that comes with every Python. Out: a corpus, a vocabulary, records and a trained model in
./quickstart_output. The script prints every command before it runs it, then a table of the results and the model's
predictions for three masked words.

    python examples/quickstart.py [--setting=full|short]

`full` takes less than 10 minutes on two cores. `short` runs the same commands on shorter sequences in less than 3
minutes, and its model knows less. Both exit with status 1 unless the model is clearly better than always predicting the
most frequent word.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # finds official_bert without an installation

OUTPUT = pathlib.Path("quickstart_output")
EVAL_BATCH_SIZE = 8
SENTENCES = (
    "If the argument is not a number, a TypeError [MASK] is raised.",
    "The return value of this [MASK] is a new string.",
    "The expression [MASK] evaluated in the current scope.",
)
REQUIRED_RATIO = 2.0  # to the accuracy of always predicting the most frequent word


@dataclasses.dataclass(frozen=True)
class Setting:
    """The sizes of a run; the model has 2 layers of 128 units in both settings."""

    num_train_steps: int
    num_warmup_steps: int
    dupe_factor: int
    vocab_size: int
    max_seq_length: int
    max_predictions_per_seq: int
    initializer_range: float
    log_every_steps: int = 100
    train_batch_size: int = 32
    learning_rate: float = 1e-3


SETTINGS = {
    "full": Setting(
        num_train_steps=3000,
        num_warmup_steps=300,
        dupe_factor=20,
        vocab_size=1500,
        max_seq_length=64,  # neighbours are found in fewer steps than among 128 pieces
        max_predictions_per_seq=10,
        initializer_range=0.02,
    ),
    "short": Setting(
        num_train_steps=1200,
        num_warmup_steps=120,
        dupe_factor=10,
        vocab_size=1000,
        max_seq_length=32,
        max_predictions_per_seq=5,
        initializer_range=0.1,  # with 0.02 attention is even at first, and so short a run learns frequencies alone
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--setting", choices=SETTINGS, default="full")
    setting = SETTINGS[parser.parse_args().setting]
    os.chdir(ROOT)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()

    make_data(setting)
    baseline = baselines(OUTPUT / "held_out.tfrecord")
    write_config(setting)
    random_weights = ("--do_eval=True", "--allow_missing_weights=True")
    start = pretrain(setting, OUTPUT / "untrained", baseline.num_records, *random_weights)
    end = pretrain(setting, OUTPUT / "model", baseline.num_records, "--do_train=True", "--do_eval=True")

    print_table(start, end, baseline)
    predict_masked_words(setting)
    check_learning(end, baseline)


def run(script: str, *flags: str):
    """Prints a command as a user would type it, runs it, and exits with its status if it fails."""
    print("\n$ python " + " \\\n    ".join([script, *map(shlex.quote, flags)]), flush=True)
    status = subprocess.run([sys.executable, script, *flags]).returncode
    if status:
        sys.exit(status)


def make_data(setting: Setting):
    """Makes the corpus, the vocabulary, and the records of both parts of the corpus."""
    run(
        "examples/quickstart_corpus.py",
        f"--train_file={OUTPUT}/train.txt",
        f"--held_out_file={OUTPUT}/held_out.txt",
    )
    run(
        "build_vocab.py",
        f"--input_file={OUTPUT}/train.txt",
        f"--output_file={OUTPUT}/vocab.txt",
        f"--vocab_size={setting.vocab_size}",
    )
    for part, dupe_factor in (("train", setting.dupe_factor), ("held_out", 5)):
        run(
            "create_pretraining_data.py",
            f"--input_file={OUTPUT}/{part}.txt",
            f"--output_file={OUTPUT}/{part}.tfrecord",
            f"--vocab_file={OUTPUT}/vocab.txt",
            f"--max_seq_length={setting.max_seq_length}",
            f"--max_predictions_per_seq={setting.max_predictions_per_seq}",
            f"--dupe_factor={dupe_factor}",
        )


@dataclasses.dataclass(frozen=True)
class Baselines:
    """The accuracies of constant predictions on the held-out records.

    Attributes:
        num_records: the number of records.
        word: the most frequent masked WordPiece.
        masked_lm_accuracy: the accuracy of always predicting this WordPiece.
        next_sentence_accuracy: the accuracy of always predicting the more frequent label.
    """

    num_records: int
    word: str
    masked_lm_accuracy: float
    next_sentence_accuracy: float


def baselines(path: pathlib.Path) -> Baselines:
    """Computes the baselines from the labels in a file of records."""
    from official_bert.data.records.framing import read_examples

    pieces, labels = collections.Counter(), collections.Counter()
    for _, example in read_examples(str(path)):
        weights = example["masked_lm_weights"]
        pieces.update(int(i) for i, weight in zip(example["masked_lm_ids"], weights, strict=True) if weight)
        labels.update([int(example["next_sentence_labels"][0])])
    ((most_frequent, count),) = pieces.most_common(1)
    return Baselines(
        num_records=labels.total(),
        word=(OUTPUT / "vocab.txt").read_text(encoding="utf-8").split("\n")[most_frequent],
        masked_lm_accuracy=count / pieces.total(),
        next_sentence_accuracy=max(labels.values()) / labels.total(),
    )


def write_config(setting: Setting):
    from official_bert import BertConfig

    config = BertConfig.from_size(
        "tiny",
        vocab_size=setting.vocab_size,
        max_position_embeddings=setting.max_seq_length,
        hidden_dropout_prob=0.0,  # in such a short run dropout only slows the learning down
        attention_probs_dropout_prob=0.0,
        initializer_range=setting.initializer_range,
    )
    (OUTPUT / "bert_config.json").write_text(config.to_json_string(), encoding="utf-8")


def pretrain(setting: Setting, output_dir: pathlib.Path, num_held_out: int, *modes: str) -> dict[str, float]:
    """Runs run_pretraining.py and returns its eval_results.txt; without --do_train the model is untrained."""
    run(
        "run_pretraining.py",
        f"--input_file={OUTPUT}/train.tfrecord",
        f"--eval_input_file={OUTPUT}/held_out.tfrecord",
        f"--output_dir={output_dir}",
        *modes,
        f"--bert_config_file={OUTPUT}/bert_config.json",
        f"--train_batch_size={setting.train_batch_size}",
        f"--eval_batch_size={EVAL_BATCH_SIZE}",
        f"--max_eval_steps={num_held_out // EVAL_BATCH_SIZE}",
        f"--max_seq_length={setting.max_seq_length}",
        f"--max_predictions_per_seq={setting.max_predictions_per_seq}",
        f"--num_train_steps={setting.num_train_steps}",
        f"--num_warmup_steps={setting.num_warmup_steps}",
        f"--learning_rate={setting.learning_rate}",
        f"--log_every_steps={setting.log_every_steps}",
        "--random_seed=12345",
    )
    lines = (output_dir / "eval_results.txt").read_text(encoding="utf-8").splitlines()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}


def print_table(start: dict[str, float], end: dict[str, float], baseline: Baselines):
    print(f"\nOn {baseline.num_records} records of held-out documents:\n")
    print(f"{'':24}{'start':>9}{'end':>9}{'baseline':>11}")
    print(f"{'loss':24}{start['loss']:9.3f}{end['loss']:9.3f}")
    for title, name in (("masked LM", "masked_lm_accuracy"), ("next sentence", "next_sentence_accuracy")):
        print(f"{title + ' accuracy':24}{start[name]:9.1%}{end[name]:9.1%}{getattr(baseline, name):11.1%}")
    print(f"\nThe baselines always predict {baseline.word!r} and the more frequent label.")


def check_learning(end: dict[str, float], baseline: Baselines):
    """Exits with status 1 unless the model is clearly better than the baseline of the masked LM."""
    if end["masked_lm_accuracy"] < REQUIRED_RATIO * baseline.masked_lm_accuracy:
        sys.exit(
            f"the model does not reach {REQUIRED_RATIO:g} times the accuracy of always predicting {baseline.word!r}"
        )


def predict_masked_words(setting: Setting):
    """Loads the trained model and prints its five best WordPieces for the masked word of each sentence."""
    from official_bert import flags

    with flags.quiet_imports():
        from official_bert import BertConfig, BertPretrainer, FullTokenizer, load_checkpoint

    tokenizer = FullTokenizer(str(OUTPUT / "vocab.txt"))
    model = BertPretrainer(BertConfig.from_json_file(str(OUTPUT / "bert_config.json")))
    load_checkpoint(model, str(OUTPUT / "model"))
    print()
    for sentence in SENTENCES:
        before, after = map(tokenizer.tokenize, sentence.split("[MASK]"))
        tokens = ["[CLS]", *before, "[MASK]", *after, "[SEP]"]
        log_probs = model(
            features_of(tokenizer.convert_tokens_to_ids(tokens), 1 + len(before))
        ).masked_lm_log_probs
        best = log_probs.numpy()[0].argsort()[:-6:-1]
        print(f"{sentence}\n    {', '.join(tokenizer.convert_ids_to_tokens(best.tolist()))}")


def features_of(ids: list[int], position: int) -> dict:
    """Returns the features of a batch with one sentence, whose masked word is at `position`."""
    import numpy as np

    return {
        "input_ids": np.array([ids], "int32"),
        "input_mask": np.ones((1, len(ids)), "int32"),
        "segment_ids": np.zeros((1, len(ids)), "int32"),
        "masked_lm_positions": np.array([[position]], "int32"),
    }


if __name__ == "__main__":
    main()
