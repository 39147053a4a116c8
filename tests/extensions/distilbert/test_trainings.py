"""All fine-tuning commands train a DistilBERT as they train the BERT that it is converted to."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from official_bert.checkpoints import open_checkpoint
from official_bert.commands import convert_checkpoint
from official_bert.options.serving import ConversionOptions
from tests import fine_tuning_runs, toy
from tests.extensions.distilbert.folders import make_tensors, write_folder
from tests.extensions.distilbert.record_outputs import OUTPUTS, make_weight
from tests.shared import in_test_long

NAME = "DistilBertModel"
PIECES = [*toy.VOCABULARY, *fine_tuning_runs.MARKS]
WORDS = "embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> tuple[str, str]:
    """The folder of an encoder with the vocabulary of the runs, and the same as a BERT."""
    parent = tmp_path_factory.mktemp("models")
    tensors = make_tensors(NAME, np.load(OUTPUTS))
    tensors[WORDS] = make_weight(WORDS, (len(PIECES), 32))
    folder = write_folder(parent / "distilbert", NAME, tensors, vocab_size=len(PIECES))
    toy.write_vocabulary(folder, PIECES)
    converted = str(parent / "bert")
    options = ConversionOptions(model=str(folder), output_dir=converted, output_format="tf1")
    convert_checkpoint.run(options)
    return str(folder), converted


def train(family: str, options, model: str, output_dir: pathlib.Path):
    """Train a model and predict with it."""
    options = dataclasses.replace(
        options,
        model=model,
        vocab_file=None,
        bert_config_file=None,
        init_checkpoint=None,
    )
    fine_tuning_runs.run(family, options, output_dir, do_train=True, do_predict=True)


@pytest.mark.parametrize(
    "family",
    [
        "classification",
        "tagging",
        *in_test_long("choice", "embedding", "reranking", "squad"),
    ],
)
def test_a_training_is_that_of_the_converted_model(family, models, tmp_path):
    options = fine_tuning_runs.prepared(tmp_path, family, train=8, dev=4, test=4)
    outputs = [tmp_path / "distilbert", tmp_path / "bert"]
    for model, output_dir in zip(models, outputs, strict=True):
        train(family, options, model, output_dir)
    trained, expected = (open_checkpoint(str(output_dir)) for output_dir in outputs)
    assert trained.shapes == expected.shapes
    for name in expected.shapes:
        np.testing.assert_array_equal(trained.read(name), expected.read(name), err_msg=name)
    configs = [(output_dir / "bert_config.json").read_text() for output_dir in outputs]
    assert json.loads(configs[0])["pooler_act"] == "relu"
    assert configs[0] == configs[1]
    predictions = fine_tuning_runs.FAMILIES[family].predictions
    assert (outputs[0] / predictions).read_bytes() == (outputs[1] / predictions).read_bytes()
