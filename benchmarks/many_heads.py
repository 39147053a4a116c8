#!/usr/bin/env python3
"""Compares one export of several heads with an export of each head.

In: nothing; the models have random weights and one encoder. Out: a table, and a line of JSON in
--output for each row. Rows that this file already contains are not measured again.

A row has the processor time of one thread for a batch: of the export with all heads, of the
slowest export of one head, and of the exports of all heads one after the other. They take turns for
several rounds, and the median counts.

    python benchmarks/many_heads.py --output=many_heads.jsonl
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

RESULTS = pathlib.Path(__file__).resolve().parent / "results/many_heads.jsonl"
# The heads of an export: name -> class of its model, and its number of outputs.
HEADS = {
    "three classifiers": {
        "intent": ("BertClassifier", 150),
        "toxic": ("BertClassifier", 2),
        "score": ("BertClassifier", 1),
    },
    "a tagger and two classifiers": {
        "intent": ("BertClassifier", 150),
        "toxic": ("BertClassifier", 2),
        "pii": ("BertTagger", 9),
    },
}
BATCH_SIZES = (1, 32)
LENGTH = 128
TEXT = "the driver waved his hand and the train left the station at noon . " * 9
ROWS = [
    {"heads": name, "inputs": inputs, "batch": batch}
    for name in HEADS
    for inputs in ("tensors", "text")
    for batch in BATCH_SIZES
]


def write_models(name: str, size: str, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes a model of each head, whose encoders are equal, and returns their folders."""
    import keras

    import official_bert

    layers, width = map(int, size.split("/"))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(TEXT.split()))]
    pieces += [f"word{number}" for number in range(len(pieces), 30522)]
    vocab_file = folder / "vocab.txt"
    vocab_file.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = official_bert.FullTokenizer(str(vocab_file), True)
    config = official_bert.BertConfig(
        vocab_size=len(pieces),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 32),
        intermediate_size=4 * width,
    )
    keras.utils.set_random_seed(1)
    encoder = official_bert.BertModel(config)
    folders = {}
    for head, (class_name, num_outputs) in HEADS[name].items():
        model = getattr(official_bert, class_name)(config, num_outputs)
        model.bert.set_weights(encoder.get_weights())
        labels = None
        if class_name == "BertTagger":
            labels = ["O", *(f"{mark}-T{number}" for number in range(4) for mark in "BI")]
        elif num_outputs > 1:
            labels = [f"label{number}" for number in range(num_outputs)]
        folders[head] = folder / head
        # config.json has the label type of each classifier.
        model.save_pretrained(str(folders[head]), "huggingface", tokenizer=tokenizer, labels=labels)
    return folders


def export(folders: dict[str, pathlib.Path], inputs: str, folder: pathlib.Path) -> dict:
    """Exports the heads together and one by one, and returns the signatures by name."""
    import tensorflow as tf

    from official_bert import catalog
    from official_bert.extensions.many_heads.export import run
    from official_bert.serving import model as serving_model

    flags = {"export_text": inputs == "text"}
    names = [f"{name}={path}" for name, path in folders.items()]
    options = catalog.options_class("export_heads")(
        heads=names, export_dir=str(folder / "heads"), **flags
    )
    versions = {"all": run(options)}
    options_class = catalog.options_class("export_saved_model")
    for name, path in folders.items():
        options = options_class(model=str(path), export_dir=str(folder / name), **flags)
        versions[name] = serving_model.export(options)
    return {
        name: tf.saved_model.load(str(version)).signatures["serving_default"]
        for name, version in versions.items()
    }


def make_inputs(signature, inputs: str, batch: int) -> dict:
    """Returns a request of a signature."""
    import numpy as np
    import tensorflow as tf

    names = list(signature.structured_input_signature[1])
    if inputs == "text":
        return {name: tf.constant([TEXT] * batch) for name in names}
    ids = np.random.default_rng(1).integers(5, 20, (batch, LENGTH)).astype(np.int32)
    features = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
    }
    return {name: tf.constant(features[name]) for name in names}


def measure(signatures: dict, inputs: str, batch: int, num_rounds: int) -> dict[str, float]:
    """Returns the milliseconds of a call of each signature, and checks that the answers agree."""
    import numpy as np

    requests = {
        name: make_inputs(signature, inputs, batch) for name, signature in signatures.items()
    }
    answers = {name: signatures[name](**request) for name, request in requests.items()}
    for name, outputs in answers.items():
        if name == "all":
            continue
        for output, values in outputs.items():
            joined = answers["all"][f"{name}/{output}"].numpy()
            if joined.dtype == object:
                assert (joined == values.numpy()).all(), (name, output)
            else:
                np.testing.assert_allclose(joined, values.numpy(), atol=1e-5)
    times: dict[str, list[float]] = {name: [] for name in signatures}
    for _ in range(num_rounds):
        for name, signature in signatures.items():
            start = time.process_time()
            signature(**requests[name])
            times[name].append(time.process_time() - start)
    return {name: 1e3 * statistics.median(secs) for name, secs in times.items()}


def measure_rows(flags: argparse.Namespace, finished: list[dict]):
    """Measures the rows that are not finished, and writes each of them."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    measured = [{name: row[name] for name in ROWS[0]} for row in finished]
    signatures: dict = {}
    exported = None
    for row in ROWS:
        if row in measured:
            continue
        if exported != (row["heads"], row["inputs"]):
            exported = (row["heads"], row["inputs"])
            with tempfile.TemporaryDirectory() as name:
                folders = write_models(row["heads"], flags.size, pathlib.Path(name))
                signatures = export(folders, row["inputs"], pathlib.Path(name))
        num_rounds = flags.rounds if row["batch"] == 1 else max(3, flags.rounds // 5)
        millisecs = measure(signatures, row["inputs"], row["batch"], num_rounds)
        all_heads = millisecs.pop("all")
        result = row | {
            "size": flags.size,
            "all_ms": round(all_heads, 2),
            "one_ms": round(max(millisecs.values()), 2),
            "separate_ms": round(sum(millisecs.values()), 2),
        }
        finished.append(result)
        with open(flags.output, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


def print_table(rows: list[dict]):
    print("| heads | inputs | batch | all heads, ms | the slowest alone, ms | three exports, ms |")
    print("|---|---|--:|--:|--:|--:|")
    for row in rows:
        to_one = row["all_ms"] / row["one_ms"]
        to_all = row["separate_ms"] / row["all_ms"]
        print(
            f"| {row['heads']} | {row['inputs']} | {row['batch']} | {row['all_ms']:.1f} | "
            f"{row['one_ms']:.1f} ({to_one:.2f}x) | {row['separate_ms']:.1f} ({to_all:.2f}x) |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--size", default="6/384", help="the layers and the width of the encoder")
    parser.add_argument("--rounds", type=int, default=25, help="the calls of each export")
    parser.add_argument("--output", default=str(RESULTS), help="the file of the finished rows")
    flags = parser.parse_args()
    path = pathlib.Path(flags.output)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    finished = [json.loads(line) for line in lines]
    measure_rows(flags, finished)
    print_table(finished)


if __name__ == "__main__":
    main()
