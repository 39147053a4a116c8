"""Helpers for tests of exports in other formats: the packages of a format, and development sets."""

import json

import pytest

from official_bert.serving.exported_model import RECORD_FILE

PACKAGES = {"litert": ["ai_edge_litert"], "onnx": ["onnx", "onnxruntime"]}
formats = pytest.mark.parametrize(
    "export_format",
    [
        pytest.param(name, marks=pytest.mark.needs_extra(*packages))
        for name, packages in PACKAGES.items()
    ],
)


def read_conversion(version) -> dict:
    """Read what the record of an exported version says of its conversion."""
    record = json.loads((version / RECORD_FILE).read_text())
    return record["converted"]


def write_development_sets(folder):
    """Write small development sets of SQuAD, NER, SWAG, embeddings and STS-B."""
    context = "the cat sat on the mat . a train left the station ."
    questions = []
    for number in range(4):
        question = {
            "id": str(number),
            "question": "who " * number + "sat",
            "answers": [{"text": "cat", "answer_start": 4}],
        }
        questions.append(question)
    paragraph = {"context": context, "qas": questions}
    document = {"title": "t", "paragraphs": [paragraph]}
    squad = {"version": "1.1", "data": [document]}
    (folder / "squad").write_text(json.dumps(squad))

    words = context.split()
    tags = ["O", "B-X", "O", "I-X"] * 3 + ["O"]
    lines = [f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True)]
    sentence = "".join(lines)
    (folder / "ner").write_text(f"{sentence}\n{sentence}")

    lines = ["sent1,sent2,ending0,ending1,ending2,ending3,label\n"]
    for label in range(4):
        lines.append(f"the cat,sat,on the mat,rain,a day,the train,{label}\n")
    (folder / "swag").write_text("".join(lines))

    pairs = "the cat\ta cat\t0.1\nrain\tthe rain\t0.9\na day\tthe train left\t0.4\n"
    (folder / "embedding.tsv").write_text("sentence1\tsentence2\tscore\n" + pairs)

    lines = [
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    ]
    for pair in pairs.splitlines():
        lines.append(f"0\t1\t2\t3\t4\t5\t6\t{pair}\n")
    (folder / "dev.tsv").write_text("".join(lines))
