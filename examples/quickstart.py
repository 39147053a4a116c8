#!/usr/bin/env python3
"""Pre-trains a small BERT from scratch, with the same commands as a large one.

In: the English documentation that is on every machine with Python and this project's packages. Out,
in ./quickstart_output/<setting>: a corpus, a vocabulary, records, the training run in `model`, and
in `bert` a model in the form of a released one. The script prints every command before it runs it,
then a table of the results, the model's predictions for three masked words, its scores of a
sentence with and without a mistake and, if BLiMP.zip lies in the checkout, its accuracy on minimal
pairs, and commands to go on with.

    python examples/quickstart.py [--setting=full|short]

`full` takes less than 10 minutes on two cores. `short` runs the same commands on less text and
shorter sequences in less than 3 minutes, and its model knows less. Both exit with status 1 unless
the model is clearly better than always predicting the most frequent word, and `full` also unless it
tells better than a constant guess whether a sentence follows another. A second run continues an
interrupted one; it never trains a finished model again, nor deletes it.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # finds official_bert without an installation

OUTPUTS = pathlib.Path("quickstart_output")
POSITIONS = 128
SENTENCES = (
    "If the argument is not a number, a TypeError [MASK] is raised.",
    "The return value of this [MASK] is a new string.",
    "The expression [MASK] evaluated in the current scope.",
)
PAIR = ("This method is called once.", "These method is called once.")
MINIMAL_PAIRS = pathlib.Path("BLiMP.zip")
PAIRS_PER_PARADIGM = 20
# Of the masked LM's accuracy to that of always predicting the most frequent word.
REQUIRED_RATIO = 2.0


@dataclasses.dataclass(frozen=True)
class Setting:
    """The sizes of a run.

    Attributes:
        packages: the packages whose docstrings are read beside Python's help texts.
        required_next_sentence_gain: what the accuracy of next sentences must have above the
            baseline.
    """

    packages: str
    required_next_sentence_gain: float
    num_hidden_layers: int
    num_attention_heads: int
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
        packages="python,keras,numpy,tensorflow",
        required_next_sentence_gain=0.03,
        num_hidden_layers=4,  # with 2 layers next sentences are hardly learnt in so few steps
        num_attention_heads=2,
        num_train_steps=2800,
        num_warmup_steps=400,
        dupe_factor=8,
        vocab_size=2000,
        max_seq_length=32,  # neighbours are found in far fewer steps than among 64 pieces
        max_predictions_per_seq=5,
        initializer_range=0.02,
        train_batch_size=64,
        learning_rate=7e-4,  # with 1e-3 four layers learn nothing with some seeds
    ),
    "short": Setting(
        packages="",
        # So short a training on so little text does not teach them.
        required_next_sentence_gain=-1.0,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_train_steps=1200,
        num_warmup_steps=120,
        dupe_factor=10,
        vocab_size=1000,
        max_seq_length=32,
        max_predictions_per_seq=5,
        # With 0.02 attention is even at first, and so short a run learns frequencies alone.
        initializer_range=0.1,
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--setting", choices=SETTINGS, default="full")
    name = parser.parse_args().setting
    setting, output = SETTINGS[name], OUTPUTS / name
    os.chdir(ROOT)
    if (output / "bert").exists():
        print(f"{output}/bert holds a trained model already. Delete {output} to train another one.")
    else:
        output.mkdir(parents=True, exist_ok=True)
        make_data(setting, output)
        write_config(setting, output)
        evaluate(setting, output, "untrained", "--allow_missing_weights=True")
        train(setting, output, "model")
        evaluate(setting, output, "model")
        publish(output)

    baseline = baselines(output)
    print_table(results(output / "untrained"), results(output / "model"), baseline)
    predict_masked_words(output / "bert")
    compare_sentences(output / "bert")
    check_learning(setting, results(output / "model"), baseline)
    print_next_steps(setting, output)


def run(name: str, *flags: str):
    """Prints a command as a user would type it, runs it, and exits with its status if it fails.

    `name` is a script of the checkout, or a command of official-bert.
    """
    is_script = name.endswith(".py")
    shown = [f"python {name}" if is_script else f"official-bert {name}", *map(shlex.quote, flags)]
    print("\n$ " + " \\\n    ".join(shown), flush=True)
    program = [name] if is_script else ["-m", "official_bert", name]
    status = subprocess.run([sys.executable, *program, *flags]).returncode
    if status:
        sys.exit(status)


def make_data(setting: Setting, output: pathlib.Path):
    """Makes the corpus, the vocabulary, the records of both parts of the corpus, and a task to
    fine-tune on.
    """
    run(
        "examples/quickstart_corpus.py",
        f"--train_file={output}/train.txt",
        f"--held_out_file={output}/held_out.txt",
        f"--docstrings_of={setting.packages}",
    )
    run("examples/quickstart_topics.py", f"--data_dir={output}/topics")
    run(
        "build_vocab",
        f"--input_file={output}/train.txt",
        f"--output_file={output}/vocab.txt",
        f"--vocab_size={setting.vocab_size}",
    )
    # Those of the training have no masks, which are drawn anew each time a record is read.
    without_masks = ("--generator=sharded", "--num_workers=2", "--dynamic_masking")
    for part, dupe_factor, flags in (
        ("train", setting.dupe_factor, without_masks),
        ("held_out", 2, ()),
    ):
        run(
            "create_pretraining_data.py",
            *flags,
            f"--input_file={output}/{part}.txt",
            f"--output_file={output}/{part}.tfrecord",
            f"--vocab_file={output}/vocab.txt",
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


def baselines(output: pathlib.Path) -> Baselines:
    """Computes the baselines from the labels in the held-out records."""
    from official_bert.io.quiet_imports import quiet_imports

    with quiet_imports():
        from official_bert.data.records.framing import read_examples

    pieces, labels = collections.Counter(), collections.Counter()
    for _, example in read_examples(str(output / "held_out.tfrecord")):
        weights = example["masked_lm_weights"]
        pieces.update(
            int(i) for i, weight in zip(example["masked_lm_ids"], weights, strict=True) if weight
        )
        labels.update([int(example["next_sentence_labels"][0])])
    ((most_frequent, count),) = pieces.most_common(1)
    return Baselines(
        num_records=labels.total(),
        word=(output / "vocab.txt").read_text(encoding="utf-8").split("\n")[most_frequent],
        masked_lm_accuracy=count / pieces.total(),
        next_sentence_accuracy=max(labels.values()) / labels.total(),
    )


def write_config(setting: Setting, output: pathlib.Path):
    from official_bert import BertConfig

    config = BertConfig.from_size(
        "tiny",
        vocab_size=setting.vocab_size,
        max_position_embeddings=POSITIONS,
        num_hidden_layers=setting.num_hidden_layers,
        num_attention_heads=setting.num_attention_heads,
        hidden_dropout_prob=0.0,  # in such a short run dropout only slows the learning down
        attention_probs_dropout_prob=0.0,
        initializer_range=setting.initializer_range,
    )
    (output / "bert_config.json").write_text(config.to_json_string(), encoding="utf-8")


def train(setting: Setting, output: pathlib.Path, name: str):
    """Trains a model in the folder `name`."""
    pretrain(
        setting,
        output,
        name,
        "--do_train=True",
        f"--input_file={output}/train.tfrecord-?????-of-?????",
        "--file_order=each_pass",
        "--dynamic_masking",
        "--jit_compile",  # steps of so small a model are a quarter faster
        f"--train_batch_size={setting.train_batch_size}",
        f"--num_train_steps={setting.num_train_steps}",
        f"--num_warmup_steps={setting.num_warmup_steps}",
        f"--learning_rate={setting.learning_rate}",
        f"--log_every_steps={setting.log_every_steps}",
    )


def evaluate(setting: Setting, output: pathlib.Path, name: str, *flags: str):
    """Evaluates the model in the folder `name`, or an untrained one, on all held-out records."""
    pretrain(
        setting,
        output,
        name,
        "--do_eval=True",
        f"--input_file={output}/held_out.tfrecord",
        "--eval_batch_size=64",
        "--max_eval_steps=0",
        *flags,
    )


def pretrain(setting: Setting, output: pathlib.Path, name: str, *flags: str):
    run(
        "run_pretraining.py",
        f"--output_dir={output}/{name}",
        f"--bert_config_file={output}/bert_config.json",
        f"--vocab_file={output}/vocab.txt",
        f"--max_seq_length={setting.max_seq_length}",
        f"--max_predictions_per_seq={setting.max_predictions_per_seq}",
        "--random_seed=12345",
        *flags,
    )


def publish(output: pathlib.Path):
    """Makes a folder like that of a released model, without what only a training needs."""
    run(
        "convert_checkpoint",
        f"--model={output}/model",
        f"--output_dir={output}/bert",
        "--output_format=tf1_weights",
    )


def results(output_dir: pathlib.Path) -> dict[str, float]:
    """Reads the eval_results.txt of a run."""
    lines = (output_dir / "eval_results.txt").read_text(encoding="utf-8").splitlines()
    return {name: float(value) for name, value in (line.rsplit(" = ", 1) for line in lines)}


def print_table(start: dict[str, float], end: dict[str, float], baseline: Baselines):
    print(f"\nOn {baseline.num_records} records of documents that the model has never seen:\n")
    print(f"{'':24}{'start':>9}{'end':>9}{'baseline':>11}")
    print(f"{'loss':24}{start['loss']:9.3f}{end['loss']:9.3f}")
    for title, name in (
        ("masked LM", "masked_lm_accuracy"),
        ("next sentence", "next_sentence_accuracy"),
    ):
        print(
            f"{title + ' accuracy':24}{start[name]:9.1%}{end[name]:9.1%}{getattr(baseline, name):11.1%}"
        )
    ratio = end["masked_lm_accuracy"] / baseline.masked_lm_accuracy
    gain = end["next_sentence_accuracy"] - baseline.next_sentence_accuracy
    print(
        f"\nThe baselines always predict {baseline.word!r} and the more frequent label. The model "
        f"finds {ratio:.1f}"
    )
    if gain > 0:
        print(
            f"times as many masked words, and judges {100 * gain:.0f} more of 100 pairs of texts "
            "correctly."
        )
    else:
        print(
            "times as many masked words. So short a training on so little text does not teach next "
            "sentences."
        )


def check_learning(setting: Setting, end: dict[str, float], baseline: Baselines):
    """Exits with status 1 unless the model is clearly better than the baselines."""
    if end["masked_lm_accuracy"] < REQUIRED_RATIO * baseline.masked_lm_accuracy:
        sys.exit(
            f"the model does not reach {REQUIRED_RATIO:g} times the accuracy of always predicting "
            f"{baseline.word!r}"
        )
    gain = end["next_sentence_accuracy"] - baseline.next_sentence_accuracy
    if gain < setting.required_next_sentence_gain:
        sys.exit(
            f"next sentences: the model is only {gain:.1%} above the baseline, not the expected "
            f"{setting.required_next_sentence_gain:.0%}"
        )


def open_predictor(model: pathlib.Path):
    from official_bert.io.quiet_imports import quiet_imports

    with quiet_imports():
        from official_bert import Predictor
    return Predictor(str(model))


def predict_masked_words(model: pathlib.Path):
    """Prints the model's five best WordPieces for the masked word of each sentence."""
    predictor = open_predictor(model)
    print()
    for sentence in SENTENCES:
        (mask,) = predictor(sentence)["masks"]
        print(f"{sentence}\n    {', '.join(mask['tokens'][:5])}")


def compare_sentences(model: pathlib.Path):
    """Prints the logarithms of the probabilities of a right and a wrong sentence, and how often
    the right one wins.
    """
    print("\nThe logarithm of the probability of a sentence, and of the same with a mistake:")
    for sentence, result in zip(PAIR, open_predictor(model).score(list(PAIR)), strict=True):
        print(f"    {result['score']:7.2f}  {sentence}")
    if MINIMAL_PAIRS.exists():
        table = model.parent / "minimal_pairs.tsv"
        run(
            "evaluate_minimal_pairs",
            f"--model={model}",
            f"--input_file={MINIMAL_PAIRS}",
            f"--num_records={PAIRS_PER_PARADIGM}",
            f"--output_file={table}",
        )
        *_, (_, _, count, accuracy) = (
            line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()
        )
        print(
            f"\nOf {count} pairs of BLiMP the model prefers the right one in "
            f"{float(accuracy):.1%}; a guess has 50 %."
        )


def print_next_steps(setting: Setting, output: pathlib.Path):
    """Prints commands that use the model, and where to read on."""
    print(f"""
The model is in {output}/bert. Use it:

source .venv/bin/activate
export MODEL={output}/bert

# Fill in a masked word.
echo '{SENTENCES[1]}' | official-bert predict --model=$MODEL

# Fine-tune it: which part of Python's manual does a sentence come from?
python run_classifier.py --task_name=text --data_dir={output}/topics --model=$MODEL \\
    --do_train=true --do_eval=true --max_seq_length={setting.max_seq_length} --num_train_epochs=10 \\
    --learning_rate=3e-4 --output_dir={output}/topics_model
echo 'The command sets a breakpoint.' | official-bert predict --model={output}/topics_model

# Serve it.
pip install -e '.[serve]'
official-bert serve --model=topics={output}/topics_model

# Query the server, in another terminal.
curl -s http://localhost:8501/v1/models/topics:classify -d '{{"instances": ["The command sets a breakpoint."]}}'

Read on: docs/records.md (a corpus of your own), docs/pretraining.md, docs/finetuning.md, docs/serving_http.md.""")


if __name__ == "__main__":
    main()
