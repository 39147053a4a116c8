"""run_embeddings, run_sparse_embeddings and run_late_interaction with --data_sets."""

import json
import pathlib

import numpy as np
import pytest

pytest.importorskip("official_bert.extensions.embeddings")

from official_bert import SentenceEncoder, catalog
from official_bert.fine_tuning.finetuner import Finetuner
from official_bert.fine_tuning.run import fine_tune
from tests.fine_tuning_runs import figures
from tests.scripts import end_of, flag_list, run_here, run_script

NOUNS = ["cat", "mat", "park", "train", "driver", "rain", "noon", "child"]
FILLERS = ["the", "sat", "on", "was", "a", "day", "in", "at"]


class Draws:
    def __init__(self, seed: int):
        self._draws = np.random.default_rng(seed)

    def text(self, noun: str) -> str:
        return " ".join([*self._draws.choice(FILLERS, 3), noun, self._draws.choice(FILLERS)])

    def nouns(self) -> list[str]:
        return self._draws.choice(NOUNS, 2, replace=False).tolist()


def write_rows(path, names: str, rows):
    lines = ["\t".join(row) + "\n" for row in [names.split(), *rows]]
    path.write_text("".join(lines))


def write_sets(folder):
    """Pairs, triplets and pairs with a score, each with a dev set but the triplets."""
    draws = Draws(1)
    folder.mkdir()
    for name, count in (("pairs", 48), ("pairs_dev", 24)):
        nouns = [draws.nouns()[0] for _ in range(count)]
        rows = [[draws.text(noun), draws.text(noun)] for noun in nouns]
        write_rows(folder / f"{name}.tsv", "anchor positive", rows)
    triplets = []
    for _ in range(24):
        noun, other = draws.nouns()
        triplets.append([draws.text(noun), draws.text(noun), draws.text(other)])
    write_rows(folder / "triplets.tsv", "question good bad", triplets)
    for name, count in (("scores", 24), ("scores_dev", 20)):
        rows = []
        for number in range(count):
            noun, other = draws.nouns()
            second = noun if number % 2 else other
            rows.append([draws.text(noun), draws.text(second), str(4.0 * (number % 2))])
        write_rows(folder / f"{name}.tsv", "anchor positive score", rows)
    (folder / "sets.toml").write_text(
        """
[pairs]
train_file = "pairs.tsv"
dev_file = "pairs_dev.tsv"
scale = 10

[triplets]
train_file = "triplets.tsv"
loss = "triplet"
anchor_column = "question"
positive_column = "good"
negative_columns = ["bad"]

[scores]
train_file = "scores.tsv"
dev_file = "scores_dev.tsv"
loss = "cosine_similarity"
"""
    )
    # A cosine has no more than 1.
    scores = (folder / "scores.tsv").read_text().replace("4.0", "1.0")
    (folder / "scores.tsv").write_text(scores)


def make_flags(base, folder, output_dir, **changes) -> dict:
    return {
        "vocab_file": base / "vocab.txt",
        "bert_config_file": base / "bert_config.json",
        "max_seq_length": 16,
        "data_sets": folder / "sets.toml",
        "do_train": True,
        "do_eval": True,
        "train_batch_size": 8,
        "num_train_epochs": 10,
        "learning_rate": 3e-3,
        "random_seed": 1,
        "output_dir": output_dir,
        **changes,
    }


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture") / "sets"
    write_sets(folder)
    return folder


def test_an_encoder_learns_from_sets_with_different_losses(base, sets, tmp_path):
    flags = make_flags(
        base, sets, tmp_path / "out", main_set="scores", eval_every_steps=60, projection=8
    )
    run_here("run_embeddings", *flag_list(**flags))
    results = figures(tmp_path / "out")
    assert results["eval_scores_spearman"] > 0.6
    assert results["eval_pairs_ndcg_at_10"] > 0.6
    assert not any("triplets" in name for name in results)
    lines = [json.loads(line) for line in (tmp_path / "out/run.jsonl").read_text().splitlines()]
    start = lines[0]
    assert start["data_sets"]["triplets"]["negative_columns"] == ["bad"]
    assert start["data_sets"]["pairs"]["train_file"] == str(sets / "pairs.tsv")
    # 96 examples are 12 batches of 8, and 10 epochs 120 updates.
    assert results["global_step"] in (60, 120)
    # The folder is that of any embedding model.
    encoder = SentenceEncoder(str(tmp_path / "out"))
    assert encoder.encode(["the cat sat"]).shape == (1, 8)


def train(flags: dict):
    """Trains with run_embeddings; returns the vectors of two texts."""
    run_here("run_embeddings", *flag_list(**flags))
    return SentenceEncoder(str(flags["output_dir"])).encode(["the cat sat", "a train was"])


def test_a_mixture_of_one_set_is_a_training_on_the_set(base, sets, tmp_path):
    (sets / "one.toml").write_text('[scores]\ntrain_file = "scores.tsv"\n')
    flags = make_flags(base, sets, tmp_path / "one", num_train_epochs=2, do_eval=False)
    flags |= {"loss": "cosent", "data_sets": sets / "one.toml"}
    vectors = train(flags)
    del flags["data_sets"]
    expected = train(flags | {"output_dir": tmp_path / "alone", "train_file": sets / "scores.tsv"})
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_the_loss_of_a_set_is_its_declared_one(base, sets, tmp_path):
    """Two sets of the same rows, of which one has another loss, differ from two of one loss."""
    vectors = []
    for number, loss in enumerate(("cosine_similarity", "cosent")):
        file = sets / f"two_{number}.toml"
        file.write_text(
            f'[a]\ntrain_file = "scores.tsv"\n[b]\ntrain_file = "scores.tsv"\nloss = "{loss}"\n'
        )
        flags = make_flags(base, sets, tmp_path / loss, num_train_epochs=1, do_eval=False)
        vectors.append(train(flags | {"loss": "cosine_similarity", "data_sets": file}))
    assert abs(vectors[0] - vectors[1]).max() > 1e-4


def test_a_mixture_that_was_killed_goes_on_where_it_stopped(base, sets, tmp_path, monkeypatch):
    changes = {"num_train_epochs": 0.5, "eval_every_steps": 3}  # 6 updates
    whole = make_flags(base, sets, tmp_path / "whole", **changes)
    expected = train(whole)
    measure = Finetuner._metrics
    calls = []

    def interrupt_first_call(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(Finetuner, "_metrics", interrupt_first_call)
    parts = whole | {"output_dir": tmp_path / "parts"}
    options = catalog.options_class("run_embeddings")(
        **{
            name: str(value) if isinstance(value, pathlib.Path) else value
            for name, value in parts.items()
        }
    )
    with pytest.raises(KeyboardInterrupt):
        fine_tune(options)
    monkeypatch.undo()
    np.testing.assert_array_equal(train(parts), expected)
    # With other data sets it does not go on.
    text = (sets / "sets.toml").read_text()
    (sets / "sets.toml").write_text(text.replace("scale = 10", "scale = 11"))
    try:
        ended = end_of("run_embeddings", *flag_list(**parts))
    finally:
        (sets / "sets.toml").write_text(text)
    assert ended.status == 1
    assert "sets.toml: differs from the data sets with which the training in" in ended.sentence


def test_micro_batches_compute_the_same(base, sets, tmp_path):
    flags = make_flags(base, sets, tmp_path / "whole", num_train_epochs=0.5, do_eval=False)
    expected = train(flags)
    vectors = train(flags | {"num_accumulation_steps": 2, "output_dir": tmp_path / "parts"})
    np.testing.assert_allclose(vectors, expected, atol=2e-5)


def test_two_replicas_compute_the_same(base, sets, tmp_path):
    flags = make_flags(base, sets, tmp_path / "one", num_train_epochs=0.5, do_eval=False)
    expected = train(flags)
    flags["output_dir"] = tmp_path / "two"
    replicas = {"distribution_strategy": "mirrored", "num_devices": 2}
    run_script("run_embeddings", *flag_list(**flags, **replicas))
    start = json.loads((tmp_path / "two/run.jsonl").read_text().splitlines()[0])
    assert start["num_replicas"] == 2
    vectors = SentenceEncoder(str(tmp_path / "two")).encode(["the cat sat", "a train was"])
    np.testing.assert_allclose(vectors, expected, atol=2e-5)


@pytest.mark.parametrize("command", ["run_sparse_embeddings", "run_late_interaction"])
def test_other_encoders_of_texts_read_several_sets(base, sets, tmp_path, command):
    text = """
[pairs]
train_file = "pairs.tsv"
dev_file = "pairs_dev.tsv"

[margins]
train_file = "margins.tsv"
loss = "margin_mse"
anchor_column = "question"
positive_column = "good"
negative_columns = ["bad"]
label_column = "margin"
"""
    (sets / "retrieval.toml").write_text(text)
    header, *rows = (sets / "triplets.tsv").read_text().splitlines()
    lines = [f"{header}\tmargin", *(f"{row}\t0.5" for row in rows)]
    (sets / "margins.tsv").write_text("\n".join(lines))
    flags = make_flags(base, sets, tmp_path / "out", num_train_epochs=1)
    flags["data_sets"] = sets / "retrieval.toml"
    run_here(command, *flag_list(**flags))
    assert 0 < figures(tmp_path / "out")["eval_pairs_ndcg_at_10"] <= 1


@pytest.mark.parametrize(
    ("text", "changes", "sentence"),
    [
        ("", {}, "sets.toml: has no data sets; write a table for each"),
        ("pairs = 1", {}, "[pairs]: must be a table with the flags of a data set"),
        ("[A-b]", {}, "[A-b]: a name may have small letters, digits and underscores only"),
        ("[a]\nscale = 2", {}, "[a]: has neither train_file nor dev_file; name one of them"),
        ("[a]\ntrain_fil = 'x'", {}, "unknown field 'train_fil'; did you mean train_file?"),
        ("[a]\ntrain_file = 1", {}, "[a]: train_file: must be a text, got 1"),
        ("[a]\ntrain_file = 'x.tsv'\nloss = 'l2'", {}, "[a]: loss: 'l2' must be one of"),
        ("[a]\ntrain_file = 'x.tsv'\nscale = -1", {}, "[a]: scale: -1 must be positive"),
        (
            "[a]\ntrain_file = 'pairs.tsv'\nloss = 'triplet'\nscale = 3",
            {},
            "[a]: --scale=3.0: has no effect without --loss=",
        ),
        ("[a]\ndev_file = 'pairs.tsv'", {}, "no table has a train_file; add it to one"),
        ("[a]\ntrain_file = 'pairs.tsv'", {}, "no table has a dev_file; add it to one"),
        ("[a]\ntrain_file = 'absent.tsv'", {"do_eval": False}, "absent.tsv"),
        (
            "[a]\ntrain_file = 'pairs.tsv'\ndev_file = 'pairs.tsv'",
            {"main_set": "b"},
            "--main_set=b: must be a table of",
        ),
        ("[a]\ntrain_file = 'pairs.tsv'", {"jit_compile": True}, "--jit_compile: XLA compiles"),
        ("[a]\ntrain_file = 'pairs.tsv'", {"train_file": "t.tsv"}, "--train_file=t.tsv: --data_s"),
        (
            "[a]\ntrain_file = 'pairs.tsv'\nloss = 'gist'",
            {"do_eval": False},
            "--loss=gist: needs a --teacher, whose vectors it reads",
        ),
        (
            "[a]\ntrain_file = 'pairs.tsv'",
            {"do_eval": False, "train_batch_size": 64},
            "[a] has 48 training examples, fewer than a batch of 64",
        ),
    ],
)
def test_what_cannot_be_used_is_named(base, sets, tmp_path, text, changes, sentence):
    (sets / "wrong_sets.toml").write_text(text)
    flags = make_flags(base, sets, tmp_path / "out", **changes)
    ended = end_of("run_embeddings", *flag_list(**flags | {"data_sets": sets / "wrong_sets.toml"}))
    assert ended.status == 1
    assert sentence in ended.sentence
    assert not (tmp_path / "out/run.jsonl").exists()


def test_flags_without_data_sets_are_refused(base, sets, tmp_path):
    flags = make_flags(base, sets, tmp_path / "out", set_sampling="round_robin")
    del flags["data_sets"]
    ended = end_of("run_embeddings", *flag_list(**flags, train_file=sets / "pairs.tsv"))
    assert ended.status == 1
    assert "--set_sampling=round_robin: has no effect without --data_sets" in ended.sentence
