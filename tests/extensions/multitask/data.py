"""Small data sets of several tasks, and the flags of a joint training on them."""

import pathlib

from tests import fine_tuning_runs as runs

LENGTH = 24
COUNTS = {"train": 20, "dev": 14, "test": 6}

TABLES = """
[topic]
task_name = "text"
data_dir = "topic"

[rating]
task_name = "text"
train_file = "rating/train.tsv"
dev_file = "rating/dev.tsv"
label_type = "score"

[marks]
task_name = "text"
data_dir = "marks"
label_type = "multi"
labels = ["a", "b", "c"]

[names]
task_name = "ner"
data_dir = "names"
"""
TWO_TABLES = """
[names]
task_name = "ner"
data_dir = "names"

[topic]
task_name = "text"
data_dir = "topic"
"""
WRITERS = {
    "topic": runs.write_classes,
    "rating": runs.write_scores,
    "marks": runs.write_label_lists,
    "names": runs.write_tags,
    "cola": runs.write_cola,
    "pairs": runs.write_scored_pairs,
}


def write_data(folder: pathlib.Path):
    """Writes a model, the data of each task, and tasks.toml."""
    runs.write_model(folder / "model", "unused/", 1)
    for seed, (name, write) in enumerate(WRITERS.items()):
        (folder / name).mkdir()
        for number, (set_name, count) in enumerate(COUNTS.items()):
            # The sets have different sizes.
            write(folder / name / set_name, count + 4 * seed, runs.Texts(10 * seed + number))
    (folder / "tasks.toml").write_text(TABLES)
    (folder / "two.toml").write_text(TWO_TABLES)


def make_flags(folder: pathlib.Path, output_dir: pathlib.Path, **changes) -> dict:
    return {
        "vocab_file": folder / "model/vocab.txt",
        "bert_config_file": folder / "model/bert_config.json",
        "init_checkpoint": folder / "model/bert_model.ckpt",
        "max_seq_length": LENGTH,
        "data_sets": folder / "tasks.toml",
        "do_train": True,
        "train_batch_size": 4,
        "num_train_epochs": 1,
        "learning_rate": 1e-3,
        "random_seed": 7,
        "output_dir": output_dir,
        **changes,
    }
