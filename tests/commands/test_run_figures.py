"""The figures of a run, from the files that it leaves, of this version and of older ones."""

import pytest

from official_bert.commands.plot_run import evaluation_figures, training_figures
from official_bert.io.errors import InputError
from official_bert.training import run_log
from official_bert.training.reporting import write_scalars


@pytest.fixture
def run(tmp_path):
    for step in (10, 20, 30):
        scalars = {"loss": 1.0 / step, "learning_rate": 0.5}
        write_scalars(str(tmp_path), scalars, step)
        run_log.write(str(tmp_path), run_log.TRAIN, {"step": step} | scalars)
    for step in (20, 30):
        write_scalars(str(tmp_path / "eval"), {"loss": 2.0 / step, "f1": 0.25}, step)
    return tmp_path


def test_lines_and_event_files_give_the_same_figures(run):
    expected = {"loss": {10: 0.1, 20: 0.05, 30: 1 / 30}, "learning_rate": dict.fromkeys((10, 20, 30), 0.5)}
    for _ in range(2):
        found = training_figures(str(run))
        assert found.keys() == expected.keys()
        for name, points in expected.items():
            assert found[name] == pytest.approx(points)
        (run / "run.jsonl").unlink(missing_ok=True)  # event files remain


def test_evaluations_during_training_come_before_those_after_it(run):
    found = evaluation_figures(str(run))
    assert found == {"loss": {20: pytest.approx(0.1), 30: pytest.approx(2 / 30)}, "f1": {20: 0.25, 30: 0.25}}
    for step, value in ((7, 0.5), (14, None)):
        run_log.write(str(run), run_log.EVALUATION, {"step": step, "f1": value})
    assert evaluation_figures(str(run)) == {"f1": {7: 0.5}}


def test_a_folder_without_figures_is_refused(tmp_path):
    assert evaluation_figures(str(tmp_path)) == {}
    with pytest.raises(InputError, match=r"has neither run\.jsonl nor TensorBoard's event files"):
        training_figures(str(tmp_path))
    (tmp_path / "events.out.tfevents.1").write_text("something that is longer than a header of a record")
    with pytest.raises(InputError, match=r"tfevents.1: is no event file of TensorBoard"):
        training_figures(str(tmp_path))
