"""The command lines of scripts that read and write files, for a folder with the good files."""

import json
import os

from tests.hostile.rows import model_flags

ROOM = "make room or name another path"  # what the sentence about a full disk says


def corpus(folder, output="a.tfrecord", **flags):
    """The flags of create_pretraining_data.py; paths are relative to the folder unless they are absolute or remote."""
    given = {"input_file": "corpus.txt", "vocab_file": "vocab.txt", "output_file": output, **flags}
    paths = [f"--{name}={at(folder, value)}" for name, value in given.items()]
    return [*paths, "--max_seq_length=16", "--dupe_factor=1"]


def vocabulary(folder, output="v.txt", **flags):
    given = {"input_file": "corpus.txt", "output_file": output, **flags}
    return [*(f"--{name}={at(folder, value)}" for name, value in given.items()), "--vocab_size=200"]


def features(folder, output="features.jsonl", **flags):
    given = {"input_file": "corpus.txt", "output_file": output, **flags}
    return [*model_flags(folder, **{name: at(folder, value) for name, value in given.items()}), "--layers=-1"]


def predictions(folder, output="answers.jsonl", **flags):
    """The flags of predict.py for a folder that only looks like an export."""
    model = folder / "export" / "1"
    (model / "assets").mkdir(parents=True)
    (model / "saved_model.pb").write_bytes(b"no model")
    (model / "assets" / "vocab.txt").write_text("[PAD]\n")
    given = {"model": "export", "input_file": "corpus.txt", "output_file": output, **flags}
    return [f"--{name}={at(folder, value)}" for name, value in given.items()]


def triviaqa(folder, output="squad.json", document="doc.txt"):
    (folder / "evidence").mkdir()
    (folder / "evidence" / "doc.txt").write_text("The answer is Paris.")
    (folder / "secret.txt").write_text("Paris")
    question = {
        "QuestionId": "q1",
        "Question": "Where?",
        "Answer": {"Value": "Paris", "Aliases": []},
        "EntityPages": [{"Filename": document}],
    }
    (folder / "qa.json").write_text(json.dumps({"Data": [question]}))
    given = {"input_file": "qa.json", "data_dir": "evidence", "output_file": output}
    return [f"--{name}={at(folder, value)}" for name, value in given.items()]


def twice(folder, flags):
    """Repeats the question of triviaqa()."""
    content = json.loads((folder / "qa.json").read_text())
    (folder / "qa.json").write_text(json.dumps({"Data": content["Data"] * 2}))
    return flags


def conversion(folder, output="there", checkpoint="bert_model.ckpt", output_format="tf1"):
    return [
        f"--model={at(folder, checkpoint)}",
        f"--output_dir={at(folder, output)}",
        f"--output_format={output_format}",
    ]


def classifier(folder, **flags):
    given = {"data_dir": "classification", "output_dir": "out", **flags}
    return [
        *model_flags(folder, vocab_file=at(folder, given.pop("vocab_file", "vocab.txt"))),
        *(f"--{name}={at(folder, value)}" for name, value in given.items()),
        "--task_name=tsv",
        "--do_train",
    ]


def at(folder, names):
    """Names relative to a folder, separated by commas, as paths; absolute, remote and empty ones stay."""
    return ",".join(
        name if not name or name == "-" or name.startswith("/") or "://" in name else f"{folder}/{name}"
        for name in names.split(",")
    )


def link(folder, name, target):
    (folder / name).symlink_to(target)
    return name


def hard_link(folder, name, target):
    os.link(folder / target, folder / name)
    return name


def linked_folder(folder, output):
    """A folder of texts, with a second name."""
    (folder / "texts").mkdir()
    (folder / "texts" / "one.txt").write_text("the cat\n")
    (folder / "same").symlink_to("texts")
    return output


def broken_name(folder):
    """A folder with a text whose name is not UTF-8."""
    (folder / "texts").mkdir()
    with open(os.fsencode(folder / "texts") + b"/\xff.txt", "w") as file:
        file.write("the cat\n")
    return "texts/*.txt"
