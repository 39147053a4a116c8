"""Two questions about the toy text, for which the original's outputs are recorded; and SQuAD
files of any content.
"""

import json
import pathlib

import numpy as np

from official_bert.compat.feature_writer import convert_examples_to_features
from official_bert.tasks.squad.examples import read_squad_examples
from official_bert.tasks.squad.windows import InputFeatures
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.shared import recording

CONTEXT = "The Driver waved his hand. Rain started falling, soon after noon."
QUESTIONS = tuple(
    {
        "id": name,
        "question": text,
        "answers": [{"text": answer, "answer_start": start}],
        "is_impossible": False,
    }
    for name, text, answer, start in (
        ("q1", "Who waved?", "Driver", 4),
        ("q2", "What started?", "Rain", 27),
    )
)
LENGTHS = {"max_seq_length": 14, "doc_stride": 4, "max_query_length": 4}


def write_squad(folder: pathlib.Path, questions=QUESTIONS, context: str = CONTEXT) -> str:
    """Path of a SQuAD file of one paragraph."""
    paragraph = {"context": context, "qas": list(questions)}
    return write_json(folder, {"version": "1.1", "data": [{"paragraphs": [paragraph]}]})


def write_json(folder: pathlib.Path, content) -> str:
    path = folder / "squad.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def features_of(examples, tokenizer, is_training: bool, lengths=LENGTHS) -> list[InputFeatures]:
    features = []
    convert_examples_to_features(
        examples, tokenizer, **lengths, is_training=is_training, output_fn=features.append
    )
    return features


def toy_windows(folder: pathlib.Path, is_training: bool):
    """The two questions and their eight windows."""
    examples = read_squad_examples(write_squad(folder), is_training)
    return examples, features_of(examples, FullTokenizer(toy.write_vocabulary(folder)), is_training)


def recorded(name: str, is_training: bool = False):
    """Settings of a recording of the original, and our questions and windows of its input."""
    settings = json.loads(recording(name, "settings.json").read_text())
    cased = "uncased" if settings["do_lower_case"] else "cased"
    tokenizer = FullTokenizer(str(recording(f"{cased}_vocab.txt")), settings["do_lower_case"])
    examples = read_squad_examples(
        str(recording(name, "input.json")),
        is_training,
        settings.get("version_2_with_negative", False),
    )
    lengths = {key: settings[key] for key in LENGTHS}
    return settings, examples, features_of(examples, tokenizer, is_training, lengths)


def fed_logits(num_windows: int, max_seq_length: int) -> tuple[np.ndarray, np.ndarray]:
    """The random logits of starts and ends that the original was fed in a recording:
    float32[window, position].
    """
    draws = np.random.RandomState(6).randn(num_windows, 2, max_seq_length)
    start_logits, end_logits = np.float32(2 * draws).swapaxes(0, 1)
    return start_logits, end_logits
