"""run_classifier.py: the original's evaluations and predictions, one as a process, and a task of one's own."""

import numpy as np
import pytest

from official_bert.io.errors import InputError
from tests import toy
from tests.scripts import flag_list, run_here, run_recorded, run_script
from tests.serving.answers import answers_to_records


@pytest.mark.parametrize(("task", "run"), [("CoLA", run_script), ("MRPC", run_here), ("MNLI", run_here)])
def test_the_originals_files_are_reproduced(task, run, tmp_path):
    _, expected = run_recorded(f"run_classifier_{task}", tmp_path, run)

    def figures(path):
        return dict(line.split(" = ") for line in path.read_text().splitlines())

    actual, wanted = figures(tmp_path / "eval_results.txt"), figures(expected("eval_results.txt"))
    for key, value in wanted.items():
        np.testing.assert_allclose(float(actual[key]), float(value), rtol=2e-5, atol=2e-5, err_msg=key)
    rows, wanted_rows = map(np.loadtxt, (tmp_path / "test_results.tsv", expected("test_results.tsv")))
    np.testing.assert_allclose(rows, wanted_rows, rtol=2e-5, atol=2e-5)
    for name in ("eval.tf_record", "predict.tf_record"):
        assert (tmp_path / name).stat().st_size > 0


def write_task(folder):
    """A label that one word tells: what `cat` and `train` stand in."""
    draws = np.random.default_rng(1)
    fillers = ["the", "sat", "on", "mat", "was", "a", "day", "in", "park", "at", "noon"]

    def line(label):
        words = list(draws.choice(fillers, draws.integers(2, 12)))
        words.insert(draws.integers(len(words) + 1), {"animal": "cat", "vehicle": "train"}[label])
        return f"{' '.join(words)}\t{label}\n"

    for name, count in (("train", 256), ("dev", 64), ("test", 40)):
        labels = draws.choice(["animal", "vehicle"], count)
        (folder / f"{name}.tsv").write_text("text\tkind\n" + "".join(map(line, labels)))


def test_a_task_of_ones_own_is_learnt_evaluated_and_predicted(tmp_path):
    base = toy.make_bert_base_dir(tmp_path / "base")
    write_task(tmp_path)
    model = flag_list(
        task_name="tsv", data_dir=tmp_path, columns="text_a=text,label=kind", max_seq_length=32,
        vocab_file=base / "vocab.txt", bert_config_file=base / "bert_config.json",
    )  # fmt: skip
    trained = tmp_path / "trained"
    run_here(
        "run_classifier.py", *model,
        *flag_list(output_dir=trained, do_train=True, do_eval=True, do_predict=True, num_train_epochs=12,
                   train_batch_size=16, learning_rate=3e-3, random_seed=1),
    )  # fmt: skip
    run_here("export_saved_model.py", *flag_list(model=trained, export_dir=tmp_path / "exports"))
    results = dict(line.split(" = ") for line in (trained / "eval_results.txt").read_text().splitlines())
    assert float(results["eval_accuracy"]) > 0.95
    assert results["global_step"] == "192"  # 256 / 16 * 12
    assert (trained / "labels.txt").read_text() == "animal\nvehicle\n"

    # The checkpoint alone is enough to predict, in another folder and at another batch size.
    again = tmp_path / "again"
    run_here(
        "run_classifier.py", *model,
        *flag_list(output_dir=again, init_checkpoint=trained, do_predict=True, predict_batch_size=3),
    )  # fmt: skip
    first, second = (np.loadtxt(folder / "test_results.tsv") for folder in (trained, again))
    assert first.shape == (40, 2)
    np.testing.assert_allclose(first, second, atol=2e-6)
    truth = [line.split("\t")[1] == "vehicle" for line in (tmp_path / "test.tsv").read_text().splitlines()[1:]]
    assert (first.argmax(1) == np.array(truth)).mean() > 0.95

    exported = answers_to_records(tmp_path / "exports" / "1", trained / "predict.tf_record")
    np.testing.assert_allclose(exported["probabilities"], first, atol=1e-5)
    np.testing.assert_array_equal(exported["label"], np.array([b"animal", b"vehicle"])[first.argmax(1)])

    run_here("export_saved_model.py", *flag_list(model=trained, export_dir=tmp_path / "exports", dtype="bfloat16"))
    exported = answers_to_records(tmp_path / "exports" / "2", trained / "predict.tf_record")
    np.testing.assert_allclose(exported["probabilities"], first, atol=0.03)
    sizes = [
        (tmp_path / "exports" / version / "variables/variables.data-00000-of-00001").stat().st_size for version in "12"
    ]
    assert sizes[1] < 0.6 * sizes[0]


def test_an_unknown_task_is_named(tmp_path):
    base = toy.make_bert_base_dir(tmp_path / "base")
    flags = flag_list(
        task_name="sentiment", data_dir=tmp_path, output_dir=tmp_path / "out", do_eval=True,
        vocab_file=base / "vocab.txt", bert_config_file=base / "bert_config.json",
    )  # fmt: skip
    with pytest.raises(InputError, match="Task not found: sentiment; it is one of"):
        run_here("run_classifier.py", *flags)
