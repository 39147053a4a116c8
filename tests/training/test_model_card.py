"""The model card of a folder: what its generated part says, and that the user's words stay."""

import dataclasses

import pytest
import tensorflow as tf

from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.training.model_card import BEGIN, END, FILE, write_model_card
from official_bert.training.run_log import write_start


@pytest.fixture
def options(tmp_path):
    return ClassificationOptions(
        task_name="CoLA", data_dir="glue/CoLA", output_dir=str(tmp_path), vocab_file="base/vocab.txt",
        bert_config_file="base/bert_config.json", init_checkpoint="base/bert_model.ckpt", do_train=True,
        learning_rate=2e-5, class_weights=["1", "2|3"], do_lower_case=True,
    )  # fmt: skip


def record(options, seed=7, num_updates=5):
    one_device = tf.distribute.get_strategy()
    write_start(options.output_dir, options, seed, one_device, {"num_updates": num_updates})


def test_a_card_says_what_was_trained_on_what(options, tmp_path):
    record(options)
    (tmp_path / "eval_results.txt").write_text("eval_accuracy = 0.75\nglobal_step = 12\n")
    (tmp_path / "labels.txt").write_text("bad\ngood\n")
    (tmp_path / "eval_results_mm.txt").write_text("eval_accuracy = 0.5\n")
    write_model_card(str(tmp_path), "CoLA", options)
    card = (tmp_path / FILE).read_text()
    assert card.startswith("# BERT for CoLA\n\n- **License:** <!-- fill in")
    for line in (
        "- Task: CoLA (`run_classifier.py`)",
        "- Started from: `base/bert_model.ckpt`",
        "- Data: `--data_dir` `glue/CoLA`",
        "- Class weights: `bad` `1`, `good` `2 3`",
        "- Seed: 7",
        "- Devices: /device:CPU:0, 1 replica",
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


def test_an_evaluation_later_rewrites_its_part_and_keeps_the_users(options, tmp_path):
    record(options)
    write_model_card(str(tmp_path), "CoLA", options)
    path = tmp_path / FILE
    words = path.read_text().replace("# BERT for CoLA", "# My model") + "\nThe user's end.\n"
    path.write_text(words)
    evaluated = dataclasses.replace(options, do_train=False, do_eval=True, init_checkpoint=None)
    record(evaluated, seed=8)
    (tmp_path / "eval_results.txt").write_text("eval_accuracy = 0.8\n")
    write_model_card(str(tmp_path), "CoLA", evaluated)
    card = path.read_text()
    assert card.startswith(words[: words.index(BEGIN)])
    assert card.endswith(words[words.index(END) :])
    assert "| eval_accuracy | 0.8 |" in card
    assert "- Seed: 7\n" in card  # of the training
    assert "- Started from: `base/bert_model.ckpt`" in card


def test_a_card_without_the_comments_is_left_alone(options, tmp_path, caplog):
    record(options)
    (tmp_path / FILE).write_text("all of it mine\n")
    write_model_card(str(tmp_path), "CoLA", options)
    assert (tmp_path / FILE).read_text() == "all of it mine\n"
    assert f"{tmp_path / FILE}: is left as it is, since its two comments are gone" in caplog.text


def test_a_training_that_made_no_update_is_none(options, tmp_path):
    record(options)
    record(dataclasses.replace(options, learning_rate=1e-3), seed=8, num_updates=0)
    write_model_card(str(tmp_path), "CoLA", options)
    card = (tmp_path / FILE).read_text()
    assert "| `--learning_rate` | `2e-05` |" in card
    assert "- Seed: 7\n" in card
