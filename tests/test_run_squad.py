"""run_squad.py: the original's answers, one time as a process, and a task whose answer is always the same word."""

import json

import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.metrics.squad import evaluate_v2
from official_bert.tasks.squad.examples import read_gold_answers
from tests import toy
from tests.scripts import flag_list, run_here, run_recorded, run_script
from tests.serving.answers import answers_to_records

FILLERS = ["the", "sat", "on", "mat", "was", "a", "day", "in", "park", "at", "noon"]


def read_json(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def figures(folder):
    lines = (folder / "eval_results.txt").read_text().splitlines()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}


@pytest.mark.parametrize(("version", "run"), [("v1", run_here), ("v2", run_script)])
def test_the_originals_files_are_reproduced(version, run, tmp_path):
    finished, recorded = run_recorded(f"run_squad_{version}", tmp_path, run)

    def expected(name):
        return json.loads(recorded(f"{name}.json").read_text())

    stderr = finished.stderr
    assert "Num orig examples = 30" in stderr

    wanted = expected("predictions")
    answers = read_json(tmp_path, "predictions")
    assert list(answers) == list(wanted)
    assert sum(answers[key] != text for key, text in wanted.items()) <= len(wanted) // 100
    entries = [
        pair
        for key, entries in expected("nbest_predictions").items()
        for pair in zip(entries, read_json(tmp_path, "nbest_predictions")[key], strict=True)
    ]
    differing = [pair for pair in entries if pair[0]["text"] != pair[1]["text"]]
    assert len(differing) <= len(entries) // 100
    for theirs, ours in entries:
        if theirs["text"] == ours["text"]:
            assert list(ours) == list(theirs)
            numbers = [[entry[name] for name in list(entry)[1:]] for entry in (ours, theirs)]
            np.testing.assert_allclose(*numbers, rtol=2e-5, atol=2e-5)
    if version == "v2":
        odds, wanted = read_json(tmp_path, "null_odds"), expected("null_odds")
        assert list(odds) == list(wanted)
        np.testing.assert_allclose(list(odds.values()), list(wanted.values()), rtol=2e-5, atol=2e-5)
    assert (tmp_path / "null_odds.json").exists() == (version == "v2")
    assert (tmp_path / "eval.tf_record").stat().st_size > 0


def write_task(folder, name, count, seed):
    """What is in the context besides fillers: the word `cat`, the answer, in three of four."""
    draws = np.random.default_rng(seed)
    paragraphs = []
    for number in range(count):
        words = list(draws.choice(FILLERS, draws.integers(3, 12)))
        answers = []
        if number % 4:
            place = int(draws.integers(len(words) + 1))
            answers = [{"text": "cat", "answer_start": sum(len(word) + 1 for word in words[:place])}]
            words.insert(place, "cat")
        question = {
            "id": f"{name}{number}", "question": "what was it", "answers": answers, "is_impossible": not answers,
        }  # fmt: skip
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the data, the flags of the model and a run that was trained and tuned on what it predicts."""
    folder = tmp_path_factory.mktemp("squad")
    base = toy.make_bert_base_dir(folder / "base")
    dev = write_task(folder, "dev", 60, seed=2)
    model = flag_list(
        vocab_file=base / "vocab.txt", bert_config_file=base / "bert_config.json", max_seq_length=24,
        doc_stride=8, max_query_length=4, version_2_with_negative=True,
    )  # fmt: skip
    finished = run_here(
        "run_squad.py", *model,
        *flag_list(train_file=write_task(folder, "train", 256, seed=1), predict_file=dev, do_train=True,
                   do_predict=True, num_train_epochs=12, train_batch_size=16, learning_rate=3e-3, random_seed=1,
                   output_dir=folder / "trained", null_score_diff_threshold="auto"),
    )  # fmt: skip
    run_here("export_saved_model.py", *flag_list(model=folder / "trained", export_dir=folder / "exports"))
    assert "Num orig examples = 256" in finished.stderr
    assert "Num split examples = 256" in finished.stderr
    return folder, model, dev


def test_answers_are_learnt_and_scored_by_the_official_rules(trained):
    folder, _, dev = trained
    results = figures(folder / "trained")
    assert results["f1"] > 90
    assert results["global_step"] == 192  # 256 questions / 16 * 12
    assert results["total"] == 60
    assert results["HasAns_total"] == 45
    assert results["threshold_is_tuned_on_predicted_file"] == 1
    assert results["untuned_f1"] <= results["f1"]
    answers, odds = (read_json(folder / "trained", name) for name in ("predictions", "null_odds"))
    threshold = results["null_score_diff_threshold"]
    assert {key for key, text in answers.items() if not text} == {
        key for key, value in odds.items() if value > threshold
    }
    assert {threshold, results["best_f1_thresh"], results["best_exact_thresh"]} <= {0.0, *odds.values()}
    for name, value in evaluate_v2(read_gold_answers(str(dev)), answers).items():
        assert results[name] == pytest.approx(value, rel=1e-6), name
    assert (folder / "trained" / "train.tf_record").stat().st_size > 0


def test_the_exported_model_gives_the_same_logits(trained):
    folder = trained[0]
    answers = answers_to_records(folder / "exports" / "1", folder / "trained" / "eval.tf_record")
    with np.load(folder / "trained" / "logits.npz") as written:
        for name in ("start_logits", "end_logits"):
            np.testing.assert_allclose(answers[name], written[name], atol=1e-5)


def test_the_pooler_is_not_trained(trained):
    from official_bert.checkpoints import open_checkpoint

    first, last = (open_checkpoint(str(trained[0] / "trained" / f"model.ckpt-{step}")) for step in (0, 192))
    for name in ("bert/pooler/dense/kernel", "bert/pooler/dense/bias"):
        np.testing.assert_array_equal(first.read(name), last.read(name))
        assert f"{name}/adam_m" not in last.shapes
    assert "cls/squad/output_weights/adam_m" in last.shapes
    assert np.abs(first.read("cls/squad/output_weights") - last.read("cls/squad/output_weights")).max() > 1e-3


def test_a_checkpoint_predicts_alone_and_a_threshold_comes_from_another_file(trained):
    folder, model, dev = trained
    again = folder / "again"
    run_here(
        "run_squad.py", *model,
        *flag_list(predict_file=dev, do_predict=True, predict_batch_size=7,
                   init_checkpoint=folder / "trained", output_dir=again, null_score_diff_threshold=f"auto:{dev}",
                   length_aware_batches=True),
    )  # fmt: skip
    assert read_json(again, "predictions") == read_json(folder / "trained", "predictions")
    results = figures(again)
    assert results["null_score_diff_threshold"] == pytest.approx(
        figures(folder / "trained")["null_score_diff_threshold"], abs=1e-4
    )
    assert not any(name.startswith(("untuned", "threshold_is")) for name in results)


def test_a_printed_threshold_gives_the_same_answers(trained):
    folder, model, dev = trained
    tuned = figures(folder / "trained")
    run_here(
        "run_squad.py", *model,
        *flag_list(do_predict=True, ensemble_dirs=folder / "trained", predict_file=dev, output_dir=folder / "given",
                   null_score_diff_threshold=tuned["null_score_diff_threshold"]),
    )  # fmt: skip
    assert read_json(folder / "given", "predictions") == read_json(folder / "trained", "predictions")
    given = figures(folder / "given")
    assert {name: given[name] for name in ("f1", "exact")} == {name: tuned[name] for name in ("f1", "exact")}


def test_an_ensemble_of_a_run_with_itself_is_that_run(trained):
    folder, model, dev = trained
    twice = f"{folder / 'trained'},{folder / 'trained'}"
    ensemble = flag_list(do_predict=True, ensemble_dirs=twice, predict_file=dev, null_score_diff_threshold="auto")
    run_here("run_squad.py", *model, *ensemble, f"--output_dir={folder / 'twice'}")
    for name in ("predictions", "nbest_predictions", "null_odds"):
        assert read_json(folder / "twice", name) == read_json(folder / "trained", name)

    other = [*flag_list(doc_stride=6), f"--output_dir={folder / 'refused'}"]
    with pytest.raises(InputError, match=r"logits\.npz: its logits are of another doc_stride"):
        run_here("run_squad.py", *model, *ensemble, *other)
