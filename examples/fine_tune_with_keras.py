#!/usr/bin/env python3
"""Fine-tunes a text classifier with Keras' `fit` on one device.

In: the folder of a model with its vocabulary, and a file with a text, a tab and its label on each
line; without a file, a few sentences about the weather and about trains. Out: the accuracy on every
tenth example, which is held out, a `.keras` file with the model and its optimizer, and a folder
with its weights for the scripts, such as official-bert predict.

    python examples/fine_tune_with_keras.py --model=FOLDER --train_file=reviews.tsv --output_dir=OUTPUT

This is the way to use the models inside a Keras program. `run_classifier.py` trains the same model
with the same updates, and does more:

- batches of examples of like length, where here every text is padded to the longest;
- checkpoints during the training, and a run that was stopped resumes as if it had not been, to the
  last bit;
- several GPUs or a TPU, gradient accumulation, and layers that are computed again to save memory;
- GLUE's tasks with their official metrics, predictions and exports for TensorFlow Serving.
"""

import argparse
import os
import pathlib
import shlex
import sys

# Finds official_bert without an installation.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

HELD_OUT_EVERY = 10
TINY = """\
It was a sunny day.\tweather
Rain started falling soon after.\tweather
It was a day in the park, and the rain started.\tweather
A train left the station at noon.\ttrain
Nobody was on board.\ttrain
The driver waved his hand.\ttrain
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--model", required=True, help="a folder with a checkpoint, its configuration and vocab.txt"
    )
    parser.add_argument("--train_file", help="a text, a tab and a label on each line")
    parser.add_argument("--output_dir", required=True, help="a new folder for the trained model")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=3e-5)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    from official_bert import InputError  # late, so that --help is quick

    try:
        fine_tune(arguments)
    except InputError as error:
        sys.exit(str(error))


def fine_tune(arguments: argparse.Namespace):
    """Trains, evaluates and saves a classifier."""
    from official_bert.io.quiet_imports import quiet_imports

    with quiet_imports():
        import keras
        import numpy as np

        from official_bert import BertClassifier, FullTokenizer, keras_optimizer, model_dir

    texts, labels = read_examples(arguments.train_file)
    names = sorted(set(labels))
    tokenizer = FullTokenizer.from_pretrained(arguments.model)
    inputs = tokenizer(texts, max_seq_length=arguments.max_seq_length)
    targets = np.array([names.index(label) for label in labels])
    held_out = np.arange(len(targets)) % HELD_OUT_EVERY == 0

    keras.utils.set_random_seed(12345)
    model = BertClassifier.from_pretrained(arguments.model, num_outputs=len(names))
    num_train_steps = arguments.epochs * -(-int((~held_out).sum()) // arguments.batch_size)
    model.compile(
        optimizer=keras_optimizer(arguments.learning_rate, num_train_steps, num_train_steps // 10),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        {name: values[~held_out] for name, values in inputs.items()},
        targets[~held_out],
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=2,
    )
    _, accuracy = model.evaluate(
        {name: values[held_out] for name, values in inputs.items()}, targets[held_out], verbose=0
    )
    print(f"accuracy on {held_out.sum()} held-out examples: {accuracy:.4f}")

    model.save_pretrained(arguments.output_dir, tokenizer=tokenizer)
    settings = {"max_seq_length": arguments.max_seq_length, "num_texts": 1, "label_type": "single"}
    record = model_dir.TaskRecord("tsv", "classification", settings)
    model_dir.write_companion_files(arguments.output_dir, None, None, record, names)
    path = os.path.join(arguments.output_dir, "model.keras")
    model.save(path)  # official_bert.load_model reads it
    print(
        f"wrote {path}, and beside it bert_model.ckpt, bert_config.json, labels.txt, task.json, "
        "vocab.txt and others"
    )
    print(
        "to answer texts, one a line: official-bert predict "
        f"--model={shlex.quote(arguments.output_dir)}"
    )


def read_examples(path: str | None) -> tuple[list[str], list[str]]:
    """Returns texts and labels of a file, or of the built-in sentences, which are repeated."""
    from official_bert import InputError
    from official_bert.io import reading

    lines = reading.read_lines(path) if path else TINY.splitlines() * 5
    texts, labels = [], []
    for number, line in enumerate(lines, start=1):
        text, tab, label = line.rpartition("\t")
        if not tab or not text or not label:
            raise InputError(f"{path}, line {number}: must be a text, a tab and a label")
        texts.append(text)
        labels.append(label)
    if len(set(labels)) < 2:
        raise InputError(f"{path}: has fewer than two labels; a classifier needs two")
    return texts, labels


if __name__ == "__main__":
    main()
