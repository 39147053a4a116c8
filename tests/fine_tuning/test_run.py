"""The skeleton of every fine-tuning script: sets are read before training, and encoded once."""

import collections
import dataclasses
import json
import shutil

import numpy as np
import pytest

from official_bert import tokenization
from official_bert.data.records.framing import read_examples
from official_bert.fine_tuning.run import Sets, fine_tune
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.tasks.base import ServedTask
from official_bert.tokenizer_config import TokenizerConfig
from official_bert.training import run_log
from tests import fine_tuning_runs, toy
from tests.fine_tuning_runs import MAX_LENGTH
from tests.shared import in_test_long


@pytest.fixture
def options(base, tmp_path):
    """CoLA's layout; every text stands in one file, and once."""
    words = toy.VOCABULARY[5:45]
    for name, first in (("train", 0), ("dev", 12), ("test", 20)):
        starts = range(first, first + 8)
        texts = [" ".join(words[start : start + 3]) for start in starts]
        if name == "test":
            rows = [f"{k}\t{text}\n" for k, text in enumerate(texts)]
            rows.insert(0, "id\ttext\n")
        else:
            rows = [f"s\t{k % 2}\t*\t{text}\n" for k, text in enumerate(texts)]
        (tmp_path / f"{name}.tsv").write_text("".join(rows))
    return ClassificationOptions(
        task_name="CoLA",
        data_dir=str(tmp_path),
        max_seq_length=8,
        train_batch_size=4,
        num_train_epochs=2.0,
        vocab_file=str(base / "vocab.txt"),
        bert_config_file=str(base / "bert_config.json"),
        output_dir=str(tmp_path / "out"),
        do_train=True,
        do_eval=True,
        do_predict=True,
        eval_every_steps=1,
    )


@pytest.fixture
def tokenized(monkeypatch):
    """How often each text was tokenized."""
    counts = collections.Counter()
    for name in ("encode", "tokenize"):
        method = getattr(tokenization.FullTokenizer, name)

        def counting(self, text, method=method):
            counts[text] += 1
            return method(self, text)

        monkeypatch.setattr(tokenization.FullTokenizer, name, counting)
    return counts


def test_each_example_is_tokenized_once_a_run(options, tmp_path, tokenized):
    """Record files are written, five evaluations made, and the first examples logged of the same
    ids.
    """
    fine_tune(options)
    texts = [
        line.split("\t")[-1]
        for name in ("train", "dev", "test")
        for line in (tmp_path / f"{name}.tsv").read_text().splitlines()
    ]
    assert [tokenized[text] for text in texts if text != "text"] == [1] * 24
    assert len(run_log.periodic_evaluations(str(tmp_path / "out"))) == 4
    for name in ("train", "eval", "predict"):
        assert len(list(read_examples(str(tmp_path / "out" / f"{name}.tf_record")))) == 8


class OnlyServed(ServedTask):
    build_model = serving_outputs = None


def test_what_does_nothing_or_only_exports_is_refused(options):
    idle = dataclasses.replace(
        options,
        do_train=False,
        do_eval=False,
        do_predict=False,
        eval_every_steps=None,
    )
    with pytest.raises(
        InputError,
        match="nothing to do: give --do_train, --do_eval or --do_predict",
    ):
        fine_tune(idle)
    with pytest.raises(
        InputError, match="--eval_every_steps and --eval_every_epochs: set the same"
    ):
        fine_tune(dataclasses.replace(options, eval_every_epochs=0.5))
    with pytest.raises(InputError, match="OnlyServed: is exported only and cannot be fine-tuned"):
        fine_tune(dataclasses.replace(options, task_name=f"{__name__}:OnlyServed"))


@pytest.mark.parametrize(
    "family",
    [
        "classification",
        *in_test_long("multi-label", "choice", "tagging", "squad", "embedding", "reranking"),
    ],
)
def test_the_folder_of_a_run_and_its_best_need_no_flag_of_the_model(tmp_path, family):
    """Both hold what evaluation and Predictor need, and give the numbers of the run that trained
    the model.
    """
    data, out = tmp_path / "data", tmp_path / "out"
    options = fine_tuning_runs.prepared(data, family)
    also = {} if family == "squad" else {"do_eval": True}
    fine_tuning_runs.run(
        family,
        options,
        out,
        do_train=True,
        do_predict=True,
        eval_every_steps=2,
        **also,
    )
    wanted = fine_tuning_runs.figures(out)
    for folder in (out, out / "best"):
        assert (folder / "vocab.txt").read_text() == (data / "model" / "vocab.txt").read_text()
        assert TokenizerConfig.read(str(folder)) == TokenizerConfig(True, None, 512)
        assert json.loads((folder / "bert_config.json").read_text())["hidden_dropout_prob"] == 0.0
        assert (
            json.loads((folder / "task.json").read_text())["settings"]["max_seq_length"]
            == MAX_LENGTH
        )
    shutil.rmtree(data / "model")
    bare = dataclasses.replace(
        options,
        vocab_file=None,
        bert_config_file=None,
        init_checkpoint=None,
        max_seq_length=None,
    )
    predictions = fine_tuning_runs.FAMILIES[family].predictions
    content = (out / predictions).read_bytes()
    fine_tuning_runs.run(family, bare, out, do_predict=True, **also)
    assert fine_tuning_runs.figures(out) == pytest.approx(wanted, abs=1e-6)
    assert (out / predictions).read_bytes() == content
    for folder in (out, out / "best"):  # as the model of another run
        fine_tuning_runs.run(
            family,
            dataclasses.replace(bare, model=str(folder)),
            tmp_path / folder.name,
            do_predict=True,
            **also,
        )
        assert (tmp_path / folder.name / predictions).read_bytes() == content


class Encoded:
    """A set of one token an example."""

    def __init__(self, tokens: list[int]):
        self.tokens, self.lengths = np.array(tokens)[:, None], np.ones(len(tokens), np.int64)

    def features(self, rows, length):
        return {"input_ids": self.tokens[rows]}


def test_digests_tell_sets_of_the_same_lengths_apart():
    def of(*sets):
        train, dev, test = map(Encoded, sets)
        return Sets(train, {"": dev}, {"": test}).digests()

    long = [*range(2500)]
    assert of(long, [1], [2]) == of(long, [1], [2])
    assert (
        len(
            {
                str(of(*sets))
                for sets in ((long, [1], [2]), (long[::-1], [1], [2]), (long, [2], [2]))
            }
        )
        == 3
    )
    assert Sets(None, {}, {}).digests() == {
        "the training set": [],
        "the dev set": [],
        "the test set": [],
    }
