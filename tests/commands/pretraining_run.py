"""A small pre-training run for the tests: records of the toy text, and readers of the run's
files.
"""

import json
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from official_bert.data.records.framing import open_example_files, read_examples
from official_bert.features import pretraining_features
from tests import toy
from tests.scripts import flag_list, run_here

SCRIPT = "run_pretraining.py"
SEQ = 24
PREDICTIONS = 4


def make_base(folder: pathlib.Path) -> pathlib.Path:
    """A toy $BERT_BASE_DIR with two files of records and padded ones beside it, and a config
    without dropout.
    """
    toy.make_bert_base_dir(folder)
    write_records(folder / "records.tfrecord")
    write_records(folder / "more.tfrecord", seed=1)
    write_records(folder / "padded.tfrecord", is_padded=True)
    without_dropout = toy.BERT_CONFIG | toy.NO_DROPOUT
    (folder / "no_dropout.json").write_text(json.dumps(without_dropout))
    return folder


def write_records(
    path: pathlib.Path,
    count: int = 64,
    seed: int = 0,
    is_padded: bool = False,
) -> str:
    """Random records that fit the toy model; returns their path.

    Their masks are random, too. Those of records that are padded have ones before zeros, and
    predictions at ones.
    """
    draws = np.random.default_rng(seed)
    highest = {
        "input_mask": 2,
        "segment_ids": 2,
        "masked_lm_positions": SEQ,
        "next_sentence_labels": 2,
    }
    features = {}
    for name, length, dtype in pretraining_features(SEQ, PREDICTIONS):
        if dtype == "float32":
            # The numbers of predictions differ a lot, so that a mean of the replicas' means would
            # be seen.
            real = draws.integers(1, PREDICTIONS + 1, (count, 1))
            features[name] = (np.arange(PREDICTIONS) < real).astype(np.float32)
        else:
            end = highest.get(name, len(toy.VOCABULARY))
            features[name] = draws.integers(0, end, (count, length))
    if is_padded:
        lengths = draws.integers(1, SEQ + 1, (count, 1))
        features["input_mask"] = (np.arange(SEQ) < lengths).astype(int)
        features["masked_lm_positions"] %= lengths
    with open_example_files([str(path)]) as files:
        files.write(features)
    return str(path)


def first_batches(
    path: pathlib.Path,
    count: int,
    batch_size: int,
) -> Iterator[dict[str, np.ndarray]]:
    records = [record for _, record in read_examples(str(path))]
    for k in range(count):
        rows = records[k * batch_size : (k + 1) * batch_size]
        batch = {}
        for name in rows[0]:
            dtype = np.float32 if "weights" in name else np.int32
            batch[name] = np.stack([row[name] for row in rows]).astype(dtype)
        yield batch


def flags_of(folder: pathlib.Path, output_dir: pathlib.Path, **changes) -> dict:
    """Flags of a short run on `folder`'s records and toy model; None leaves a flag out."""
    flags = {
        "input_file": folder / "records.tfrecord",
        "output_dir": output_dir,
        "bert_config_file": folder / "bert_config.json",
        "init_checkpoint": folder / "bert_model.ckpt",
        "do_train": True,
        "max_seq_length": SEQ,
        "max_predictions_per_seq": PREDICTIONS,
        "train_batch_size": 8,
        "num_train_steps": 10,
        "num_warmup_steps": 2,
        "learning_rate": 1e-4,
        "random_seed": 7,
        "log_every_steps": 1,
    }
    flags |= changes
    return {name: value for name, value in flags.items() if value is not None}


def run(folder: pathlib.Path, output_dir: pathlib.Path, **changes) -> str:
    """Runs the script with some flags of `flags_of` changed, and returns its log."""
    flags = flags_of(folder, output_dir, **changes)
    return run_here(SCRIPT, *flag_list(**flags)).stderr


def checkpoint_values(prefix) -> dict[str, np.ndarray]:
    """Every tensor of a checkpoint, by name."""
    reader = tf.train.load_checkpoint(str(prefix))
    names = reader.get_variable_to_shape_map()
    return {name: np.asarray(reader.get_tensor(name)) for name in names}


def scalars(folder: pathlib.Path, name: str) -> dict[int, float]:
    """A TensorBoard scalar of a run, by step."""
    found = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == name:
                    found[event.step] = float(tf.make_ndarray(value.tensor))
    return found
