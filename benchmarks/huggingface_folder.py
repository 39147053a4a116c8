#!/usr/bin/env python3
"""Reads folders that official-bert convert_checkpoint wrote with the Auto classes of Hugging Face
transformers, and compares.

In: real texts, an uncased encoder, and Google's cased vocabulary. Out: a table, and its rows as
JSON lines in --output. For an uncased and a cased folder: how many texts get other ids from
AutoTokenizer, and by how much the sequence output of AutoModel differs. For the folder of a
classifier: the same of the probabilities of AutoModelForSequenceClassification, and whether its
labels have our names.

The cased model has 4 layers of hidden size 256 and random weights, since no trained one comes as a
package. The classifier is the uncased encoder after two updates of run_classifier.py on sentences
about films.
"""

import argparse
import csv
import itertools
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

NUM_LINES, NUM_PAIRS, NUM_SENTENCES = 1500, 500, 200
NUM_IN_MODEL, BATCH_SIZE = 256, 32  # texts whose vectors are compared, drawn evenly from all
# No text is longer than the first; the second truncates many.
MAX_SEQ_LENGTH, SHORT_LENGTH = 128, 24
TARGET = 1e-4
SENTIMENTS = {"0": "negative", "1": "positive"}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="a folder with corpus, glue and vocab"
    )
    parser.add_argument("--model", required=True, help="the folder of an uncased encoder")
    parser.add_argument(
        "--work_dir", type=pathlib.Path, required=True, help="an empty folder for the models"
    )
    parser.add_argument("--output", type=pathlib.Path, help="JSON lines file for the rows")
    flags = parser.parse_args()

    flags.work_dir.mkdir(parents=True, exist_ok=True)
    texts, pairs = read_texts(flags.data)
    folders = {
        "uncased, trained": converted(flags.model, flags.work_dir / "uncased"),
        "cased, random": converted(
            random_cased_model(
                flags.data / "vocab" / "cased_vocab.txt", flags.work_dir / "cased_tf1"
            ),
            flags.work_dir / "cased",
        ),
    }
    rows = [compare_encoder(name, folder, texts, pairs) for name, folder in folders.items()]
    trained = train_classifier(flags.model, flags.data, flags.work_dir)
    sentences = [
        row["sentence"]
        for row in read_table(flags.data / "glue" / "SST-2" / "dev.tsv", NUM_SENTENCES)
    ]
    rows.append(
        compare_classifier(trained, converted(trained, flags.work_dir / "classifier"), sentences)
    )
    print_table(rows)
    if flags.output:
        with flags.output.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def run(script: str, *flags: str):
    """Runs a command of official-bert."""
    subprocess.run([sys.executable, "-m", "official_bert", script, *flags], check=True)


def converted(model: str | pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Writes a model in Hugging Face's form."""
    run(
        "convert_checkpoint",
        f"--model={model}",
        "--output_format=huggingface",
        f"--output_dir={folder}",
    )
    return folder


def random_cased_model(vocab_file: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Writes a model with random weights, which reads cased text, as a TF1 checkpoint."""
    import keras

    from official_bert import BertConfig, BertModel, FullTokenizer

    keras.utils.set_random_seed(1)
    tokenizer = FullTokenizer(str(vocab_file), do_lower_case=False)
    model = BertModel(BertConfig.from_size("mini", vocab_size=len(tokenizer.vocab)))
    model.save_pretrained(str(folder), tokenizer=tokenizer)
    return folder


def train_classifier(model: str, data: pathlib.Path, work_dir: pathlib.Path) -> pathlib.Path:
    """Trains a classifier for two updates, on a table whose labels are words, and returns its
    folder.
    """
    table, folder = work_dir / "films", work_dir / "classifier_tf1"
    table.mkdir(exist_ok=True)
    rows = read_table(data / "glue" / "SST-2" / "train.tsv", 64)
    lines = [f"{row['sentence']}\t{SENTIMENTS[row['label']]}\n" for row in rows]
    (table / "train.tsv").write_text("".join(["text\tlabel\n", *lines]), encoding="utf-8")
    run(
        "run_classifier",
        "--task_name=tsv",
        f"--data_dir={table}",
        f"--model={model}",
        "--do_train=true",
        "--num_train_epochs=1",
        "--random_seed=1",
        f"--output_dir={folder}",
    )
    return folder


def read_texts(data: pathlib.Path) -> tuple[list[str], list[str | None]]:
    """Returns lines of Wikipedia without a second text, and the pairs of STS-B."""
    with (data / "corpus" / "wiki_00.txt").open(encoding="utf-8") as file:
        lines = list(itertools.islice((line.strip() for line in file if line.strip()), NUM_LINES))
    pairs = read_table(data / "glue" / "STS-B" / "dev.tsv", NUM_PAIRS)
    return (
        lines + [row["sentence1"] for row in pairs],
        [None] * len(lines) + [row["sentence2"] for row in pairs],
    )


def read_table(path: pathlib.Path, num_rows: int) -> list[dict[str, str]]:
    """Returns the first rows of a TSV file of GLUE."""
    with path.open(encoding="utf-8") as file:
        return list(
            itertools.islice(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE), num_rows)
        )


def compare_ids(
    ours, theirs, texts: list[str], pairs: list[str | None], length: int
) -> tuple[int, list]:
    """Returns the number of tokens, and the texts or pairs for which the tokenizers give other
    ids or segments.
    """
    num_tokens, other = 0, []
    for text, pair in zip(texts, pairs, strict=True):
        batch = ours(text, pair, max_seq_length=length)
        tokens = theirs(text, pair, truncation=True, max_length=length)
        num_tokens += batch["input_ids"].size
        names = {"input_ids": "input_ids", "segment_ids": "token_type_ids"}
        if any(batch[our][0].tolist() != tokens[their] for our, their in names.items()):
            other.append((text, pair))
    return num_tokens, other


def compare_encoder(
    name: str, folder: pathlib.Path, texts: list[str], pairs: list[str | None]
) -> dict:
    """Compares ids and segments of all texts, and the sequence output of some of them."""
    import torch
    import transformers

    from official_bert import BertModel, FullTokenizer

    ours, theirs = (
        FullTokenizer.from_pretrained(str(folder)),
        transformers.AutoTokenizer.from_pretrained(folder),
    )
    num_tokens, other_ids = compare_ids(ours, theirs, texts, pairs, MAX_SEQ_LENGTH)
    for text, pair in other_ids:
        print(f"{name}: other tokens for {text!r}, {pair!r}", file=sys.stderr)
    is_long = [
        ours(*each)["input_ids"].size > SHORT_LENGTH for each in zip(texts, pairs, strict=True)
    ]
    _, other_short_ids = compare_ids(ours, theirs, texts, pairs, SHORT_LENGTH)

    our_model = BertModel.from_pretrained(str(folder))
    their_model = transformers.AutoModel.from_pretrained(folder).eval()
    chosen = range(0, len(texts), len(texts) // NUM_IN_MODEL)[:NUM_IN_MODEL]
    difference = 0.0
    for start in range(0, len(chosen), BATCH_SIZE):
        rows = chosen[start : start + BATCH_SIZE]
        batch = ours(
            [texts[row] for row in rows],
            [pairs[row] for row in rows],
            max_seq_length=MAX_SEQ_LENGTH,
        )
        with torch.inference_mode():
            their_outputs = their_model(
                torch.from_numpy(batch["input_ids"]).long(),
                attention_mask=torch.from_numpy(batch["input_mask"]).long(),
                token_type_ids=torch.from_numpy(batch["segment_ids"]).long(),
            ).last_hidden_state.numpy()
        our_outputs = our_model(**batch).sequence_output.numpy()
        is_token = batch["input_mask"] == 1
        difference = max(difference, float(np.abs(our_outputs - their_outputs)[is_token].max()))
    return {
        "model": name,
        "texts": len(texts),
        "tokens": num_tokens,
        "texts_with_other_ids": len(other_ids),
        "truncated_texts": sum(is_long),
        "truncated_texts_with_other_ids": sum(pair is None for _, pair in other_short_ids),
        "truncated_pairs_with_other_ids": sum(pair is not None for _, pair in other_short_ids),
        "compared": "sequence output",
        "compared_texts": len(chosen),
        "greatest_difference": difference,
        "target": TARGET,
        "transformers": transformers.__version__,
    }


def compare_classifier(trained: pathlib.Path, folder: pathlib.Path, sentences: list[str]) -> dict:
    """Compares the answers of Predictor, which reads the folder of the training, with the
    converted folder's.
    """
    import torch
    import transformers

    from official_bert import FullTokenizer, Predictor

    answers = Predictor(str(trained))(sentences)
    ours = FullTokenizer.from_pretrained(str(folder))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    names = [model.config.id2label[number] for number in range(model.config.num_labels)]
    num_tokens, other_ids = compare_ids(
        ours, theirs, sentences, [None] * len(sentences), MAX_SEQ_LENGTH
    )
    difference = 0.0
    for sentence, answer in zip(sentences, answers, strict=True):
        inputs = theirs(sentence, truncation=True, max_length=MAX_SEQ_LENGTH, return_tensors="pt")
        with torch.inference_mode():
            probabilities = model(**inputs).logits.softmax(-1)[0].tolist()
        if list(answer["probabilities"]) != names:
            sys.exit(f"the labels are {names}, and {list(answer['probabilities'])} here")
        pairs = zip(answer["probabilities"].values(), probabilities, strict=True)
        difference = max(difference, *(abs(our - their) for our, their in pairs))
    return {
        "model": f"classifier ({', '.join(names)})",
        "texts": len(sentences),
        "tokens": num_tokens,
        "texts_with_other_ids": len(other_ids),
        "compared": "probabilities",
        "compared_texts": len(sentences),
        "greatest_difference": difference,
        "target": TARGET,
        "transformers": transformers.__version__,
    }


def print_table(rows: list[dict]):
    """Prints the rows as a table, and below it what truncation changes."""
    print("\n| folder | texts | tokens | with other ids | compared | texts | greatest difference |")
    print("|---|--:|--:|--:|---|--:|--:|")
    for row in rows:
        print(
            f"| {row['model']} | {row['texts']:,} | {row['tokens']:,} | "
            f"{row['texts_with_other_ids']} | {row['compared']} | {row['compared_texts']} | "
            f"{row['greatest_difference']:.1e} |"
        )
    for row in rows:
        if "truncated_texts" in row:
            print(
                f"\n{row['model']}, truncated to {SHORT_LENGTH} tokens, which "
                f"{row['truncated_texts']} of them exceed: {row['truncated_texts_with_other_ids']} "
                f"texts and {row['truncated_pairs_with_other_ids']} pairs have other ids"
            )


if __name__ == "__main__":
    main()
