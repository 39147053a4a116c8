"""run_squad.py: the original's answers, a task whose answer is always the same word, and what is
refused.
"""

import json

import numpy as np
import pytest

from official_bert.checkpoints import open_checkpoint
from official_bert.fine_tuning.run import fine_tune
from official_bert.io.errors import InputError
from official_bert.metrics.squad import evaluate_v2
from official_bert.options.fine_tuning import SquadOptions
from official_bert.tasks.squad.examples import read_gold_answers, read_squad_examples
from tests.fine_tuning_runs import figures
from tests.scripts import flag_list, run_here, run_recorded, run_script
from tests.serving.answers import answers
from tests.tasks.squad.sample import QUESTIONS, write_squad

FILLERS = ["the", "sat", "on", "mat", "was", "a", "day", "in", "park", "at", "noon"]
WITHOUT_ANSWERS = [{"id": entry["id"], "question": entry["question"]} for entry in QUESTIONS]


def read_json(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def assert_numbers_close(actual: dict, expected: dict):
    """Checks names, their order and the numbers; the text of an answer is compared before."""
    assert list(actual) == list(expected)
    names = [name for name in expected if name != "text"]
    np.testing.assert_allclose(
        [actual[name] for name in names],
        [expected[name] for name in names],
        rtol=2e-5,
        atol=2e-5,
    )


@pytest.mark.usefixtures("with_grappler")
@pytest.mark.parametrize(("version", "run"), [("v1", run_here), ("v2", run_script)])
def test_the_originals_files_are_reproduced(version, run, tmp_path):
    finished, recorded = run_recorded(f"run_squad_{version}", tmp_path, run)
    assert "Num orig examples = 30" in finished.stderr

    def expected(name):
        return json.loads(recorded(f"{name}.json").read_text())

    wanted = expected("predictions")
    actual = read_json(tmp_path, "predictions")
    assert list(actual) == list(wanted)
    differing = [key for key, text in wanted.items() if actual[key] != text]
    assert len(differing) <= len(wanted) // 100

    all_entries = read_json(tmp_path, "nbest_predictions")
    num_entries = 0
    num_differing = 0
    for key, their_entries in expected("nbest_predictions").items():
        for theirs, ours in zip(their_entries, all_entries[key], strict=True):
            num_entries += 1
            if ours["text"] == theirs["text"]:
                assert_numbers_close(ours, theirs)
            else:
                num_differing += 1
    assert num_differing <= num_entries // 100
    if version == "v2":
        assert_numbers_close(read_json(tmp_path, "null_odds"), expected("null_odds"))
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
            start = sum(len(word) + 1 for word in words[:place])
            answers = [{"text": "cat", "answer_start": start}]
            words.insert(place, "cat")
        question = {
            "id": f"{name}{number}",
            "question": "what was it",
            "answers": answers,
            "is_impossible": not answers,
        }
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}))
    return path


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    """A folder with the data, the flags of the model and a run that was trained and tuned on
    what it predicts.
    """
    folder = tmp_path_factory.mktemp("squad")
    dev = write_task(folder, "dev", 60, seed=2)
    model = flag_list(
        vocab_file=base / "vocab.txt",
        bert_config_file=base / "bert_config.json",
        max_seq_length=24,
        doc_stride=8,
        max_query_length=4,
        version_2_with_negative=True,
    )
    finished = run_here(
        "run_squad.py",
        *model,
        *flag_list(
            train_file=write_task(folder, "train", 256, seed=1),
            predict_file=dev,
            do_train=True,
            do_predict=True,
            num_train_epochs=12,
            train_batch_size=16,
            learning_rate=3e-3,
            random_seed=1,
            output_dir=folder / "trained",
            null_score_diff_threshold="auto",
            keep_checkpoint_max=0,  # also that of step 0
        ),
    )
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
    predictions = read_json(folder / "trained", "predictions")
    odds = read_json(folder / "trained", "null_odds")
    threshold = results["null_score_diff_threshold"]
    unanswered = {key for key, text in predictions.items() if not text}
    assert unanswered == {key for key, value in odds.items() if value > threshold}
    assert {threshold, results["best_f1_thresh"], results["best_exact_thresh"]} <= {
        0.0,
        *odds.values(),
    }
    for name, value in evaluate_v2(read_gold_answers(str(dev)), predictions).items():
        assert results[name] == pytest.approx(value, rel=1e-6), name
    assert (folder / "trained" / "train.tf_record").stat().st_size > 0


def test_an_export_that_reads_text_has_the_tuned_threshold(trained):
    folder, _, dev = trained
    exports = flag_list(model=folder / "trained", export_dir=folder / "exports", export_text=True)
    run_here("export_saved_model", *exports)
    examples = read_squad_examples(str(dev), False)
    texts = {
        "question": np.array([example.question_text.encode() for example in examples], object),
        "context": np.array(
            [" ".join(example.doc_tokens).encode() for example in examples], object
        ),
    }
    exported = answers(folder / "exports" / "1", "serving_text", texts)
    predictions = read_json(folder / "trained", "predictions")
    odds = read_json(folder / "trained", "null_odds")
    np.testing.assert_allclose(exported["null_odds"], list(odds.values()), atol=1e-5)
    np.testing.assert_array_equal(
        exported["answer"] == b"", [not text for text in predictions.values()]
    )


def test_the_pooler_is_not_trained(trained):
    output_dir = trained[0] / "trained"
    first = open_checkpoint(str(output_dir / "model.ckpt-0"))
    last = open_checkpoint(str(output_dir / "model.ckpt-192"))
    for name in ("bert/pooler/dense/kernel", "bert/pooler/dense/bias"):
        np.testing.assert_array_equal(first.read(name), last.read(name))
        assert f"{name}/adam_m" not in last.shapes
    assert "cls/squad/output_weights/adam_m" in last.shapes
    name = "cls/squad/output_weights"
    distances = np.abs(first.read(name) - last.read(name))
    assert distances.max() > 1e-3


def test_a_checkpoint_predicts_alone_and_a_threshold_comes_from_another_file(trained):
    folder, model, dev = trained
    again = folder / "again"
    run_here(
        "run_squad.py",
        *model,
        *flag_list(
            predict_file=dev,
            do_predict=True,
            predict_batch_size=7,
            init_checkpoint=folder / "trained",
            output_dir=again,
            null_score_diff_threshold="auto",
            null_score_diff_file=dev,
            length_aware_batches=True,
        ),
    )
    assert read_json(again, "predictions") == read_json(folder / "trained", "predictions")
    results = figures(again)
    assert results["null_score_diff_threshold"] == pytest.approx(
        figures(folder / "trained")["null_score_diff_threshold"], abs=1e-4
    )
    assert not any(name.startswith(("untuned", "threshold_is")) for name in results)


def test_an_ensemble_of_a_run_with_itself_is_that_run(trained):
    folder, model, dev = trained
    twice = f"{folder / 'trained'},{folder / 'trained'}"
    ensemble = flag_list(
        do_predict=True, ensemble_dirs=twice, predict_file=dev, null_score_diff_threshold="auto"
    )
    run_here("run_squad.py", *model, *ensemble, f"--output_dir={folder / 'twice'}")
    for name in ("predictions", "nbest_predictions", "null_odds"):
        assert read_json(folder / "twice", name) == read_json(folder / "trained", name)

    other = [*flag_list(doc_stride=6), f"--output_dir={folder / 'refused'}"]
    with pytest.raises(InputError, match=r"logits\.npz: its logits are of another doc_stride"):
        run_here("run_squad.py", *model, *ensemble, *other)
    assert not (folder / "refused").exists()


def run(base, **given):
    defaults = {
        "max_seq_length": 32,
        "max_query_length": 8,
        "doc_stride": 8,
        "output_dir": str(base / "out"),
    }
    model = {
        "vocab_file": str(base / "vocab.txt"),
        "bert_config_file": str(base / "bert_config.json"),
    }
    fine_tune(SquadOptions(**(model | defaults | given)))


PREDICT = {"do_predict": True, "predict_file": "f"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"do_train": True}, "--train_file: must be given"),
        ({"do_predict": True}, "--predict_file: must be given"),
        (PREDICT | {"max_seq_length": 513}, "max_position_embeddings=512"),
        (
            PREDICT | {"max_seq_length": 11},
            "leaves no room for a document beside --max_query_length=8 question tokens",
        ),
        (PREDICT | {"null_score_diff_threshold": "auto"}, "--version_2_with_negative"),
        (
            {"do_train": True, "train_file": "f", "ensemble_dirs": ["d"]},
            "--ensemble_dirs: only goes with --do_predict",
        ),
        (PREDICT | {"ensemble_dirs": ["d", ""]}, "--ensemble_dirs: the name of a folder is empty"),
        (
            {"do_train": True, "train_file": "f", "search": "paper"},
            "--predict_file: must be given with --search",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_named(base, given, sentence):
    with pytest.raises(InputError, match=sentence):
        run(base, **given)


@pytest.mark.parametrize(
    ("questions", "context"),
    [((), "The Driver waved."), (QUESTIONS, "Nobody waved. Nothing started falling.")],
)
def test_training_without_an_answer_is_refused(base, tmp_path, questions, context):
    path = write_squad(tmp_path, questions, context)
    with pytest.raises(
        InputError, match=f"^{path}: has no question whose answer is in its document; correct"
    ):
        run(base, do_train=True, train_file=path)


@pytest.mark.parametrize(
    ("flag", "given", "questions", "message"),
    [
        ("predict_file", {"do_predict": True}, None, "no such file"),
        ("predict_file", {"do_predict": True}, (), "has no question; give a file"),
        ("predict_file", {"eval_every_steps": 1}, WITHOUT_ANSWERS, "has no answers to"),
        ("threshold", {"do_predict": True}, WITHOUT_ANSWERS, "has no answers to"),
        (
            "predict_file",
            {"search": "paper"},
            WITHOUT_ANSWERS,
            "has no answers to compare the runs of a search by",
        ),
    ],
)
def test_files_are_read_before_the_training(base, tmp_path, flag, given, questions, message):
    (tmp_path / "faulty").mkdir()
    train_file = write_squad(tmp_path)
    path = tmp_path / "faulty" / "squad.json"
    if questions is not None:
        write_squad(path.parent, questions)
    files = {
        "train_file": train_file,
        "predict_file": train_file,
        "output_dir": str(tmp_path / "out"),
    }
    if flag == "threshold":
        files |= {
            "version_2_with_negative": True,
            "null_score_diff_threshold": "auto",
            "null_score_diff_file": str(path),
        }
    else:
        files["predict_file"] = str(path)
    with pytest.raises(InputError, match=f"^{path}: {message}"):
        run(base, do_train=True, train_batch_size=2, **given | files)
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    ("tunes", "message"),
    [
        (
            False,
            "/logits.npz: no such file; run_squad.py with --do_predict writes it into its "
            "--output_dir",
        ),
        (
            True,
            "/threshold_logits.npz: no such file; run_squad.py with --do_predict and "
            "--null_score_diff_file writes it",
        ),
    ],
)
def test_an_ensemble_says_how_its_logits_are_made(base, tmp_path, tunes, message):
    path = write_squad(tmp_path)
    flags = {"do_predict": True, "predict_file": path, "version_2_with_negative": True}
    if tunes:
        run(base, **flags, allow_missing_weights=True, output_dir=str(tmp_path / "member"))
        flags |= {"null_score_diff_threshold": "auto", "null_score_diff_file": path}
    with pytest.raises(InputError, match=f"^{tmp_path}/member{message}"):
        run(
            base,
            **flags,
            output_dir=str(tmp_path / "ensemble"),
            ensemble_dirs=[str(tmp_path / "member")],
        )
