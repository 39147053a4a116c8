"""The model card of a folder: what it says of its last training, and of its evaluations."""

import dataclasses

import pytest
import tensorflow as tf

from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.training.run_log import write_start
from tests.scripts import run_script


@pytest.fixture
def options(tmp_path):
    return ClassificationOptions(
        task_name="CoLA",
        data_dir="glue/CoLA",
        output_dir=str(tmp_path),
        vocab_file="base/vocab.txt",
        bert_config_file="base/bert_config.json",
        init_checkpoint="base/bert_model.ckpt",
        do_train=True,
        learning_rate=2e-5,
        class_weights=["1", "2|3"],
        do_lower_case=True,
    )


def test_a_card_says_what_was_trained_on_what(options, tmp_path):
    one_device = tf.distribute.get_strategy()
    write_start(str(tmp_path), options, 7, one_device, {"num_updates": 5})
    no_update = dataclasses.replace(options, learning_rate=1e-3)
    write_start(str(tmp_path), no_update, 8, one_device, {"num_updates": 0})
    evaluated = dataclasses.replace(options, do_train=False, do_eval=True, init_checkpoint=None)
    write_start(str(tmp_path), evaluated, 9, one_device)
    (tmp_path / "eval_results.txt").write_text("eval_accuracy = 0.75\nglobal_step = 12\n")
    (tmp_path / "eval_results_mm.txt").write_text("eval_accuracy = 0.5\n")
    (tmp_path / "labels.txt").write_text("bad\ngood\n")
    card = run_script("examples/model_card.py", str(tmp_path)).stdout
    assert card.startswith("# BERT for run_classifier\n\n- **License:** <!-- fill in")
    for line in (
        "- Script: `run_classifier.py`",
        "- Started from: `base/bert_model.ckpt`",
        "- Data: `--data_dir` `glue/CoLA`",
        "- Class weights: `bad` `1`, `good` `2 3`",
        "- Seed: 7",
        "- Devices: /device:CPU:0; replicas: 1",
        "| `--learning_rate` | `2e-05` |",
        "| `--class_weights` | `1,2 3` |",  # a bar would end the cell
        "## Results: eval_results.txt",
        "| eval_accuracy | 0.75 |",
        "## Results: eval_results_mm.txt",
        f"| tensorflow | {tf.__version__} |",
    ):
        assert f"\n{line}\n" in card, line
    assert "--train_batch_size" not in card  # the default
    assert "--do_lower_case" not in card


def test_a_folder_without_a_run_is_refused(tmp_path):
    ended = run_script("examples/model_card.py", str(tmp_path), status=1)
    assert ended.stderr.strip() == (
        f"{tmp_path / 'run.jsonl'}: has no record of a run; name the --output_dir of a training "
        "script"
    )
