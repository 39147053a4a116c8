"""What is refused before anything runs: unknown flags and fields, absent data and models."""

import pytest

from official_bert.io.errors import InputError
from official_bert.jobs.experiments.scripts import (
    check_given,
    check_step,
    fields_of,
    read_encoders,
    training_flags,
)
from official_bert.jobs.experiments.steps import Given, Layout, Step


def step_with(config=(), script="run_ner", **flags) -> Step:
    return Step("fine-tuning", "WNUT-17", script, tuple(flags.items()), config)


def test_flags_that_a_script_has_pass():
    check_step(step_with(train_batch_size=3, document_context=True, data_dir=Given("x")), "mine.toml")
    check_step(step_with(learning_rate=1, document_context="true", random_seed="3"), "mine.toml")
    check_step(step_with((("hidden_size", 16),), "run_pretraining", bert_config_file="x"), "mine.toml")


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (
            step_with(lerning_rate=1.0),
            "mine.toml, or the scale or the task that it uses: run_ner.py has no flag --lerning_rate "
            "(fine-tuning WNUT-17); did you mean learning_rate?",
        ),
        (
            step_with((("hiden_size", 4),)),
            "a bert_config.json has no field 'hiden_size' (fine-tuning WNUT-17); did you",
        ),
        (
            step_with(train_batch_size=0),
            "mine.toml, or the scale or the task that it uses: run_ner.py, --train_batch_size=0: must be at least 1, "
            "and at most 4194304 (fine-tuning WNUT-17); correct it",
        ),
        (step_with(train_batch_size=2.5), "--train_batch_size=2.5: must be a whole number (fine-tuning"),
        (step_with(learning_rate=float("inf")), "--learning_rate=inf: must be a finite number (fine-tuning"),
        (step_with(optimizer_type="sgd"), "--optimizer_type=sgd: must be one of adamw, lamb (fine-tuning"),
        (step_with(do_lower_case="yes"), "--do_lower_case=yes: must be true or false (fine-tuning"),
        (
            step_with(script="predict"),
            "script 'predict': is none that experiments use; it is one of build_vocab",
        ),
    ],
)
def test_flags_and_fields_that_nobody_takes_are_refused(step, sentence):
    with pytest.raises(InputError) as raised:
        check_step(step, "mine.toml")
    assert sentence in str(raised.value)


def test_the_flags_of_a_script_are_those_of_its_options():
    assert {"data_dir", "document_context", "max_seq_length"} <= fields_of("run_ner").keys()


def test_absent_data_are_named(tmp_path):
    (tmp_path / "text1.txt").write_text("x")
    layout = Layout("steps", str(tmp_path), {"base": str(tmp_path)}, ".")
    check_given([step_with(input_file=Given("text*.txt"), model=Given("", "base"))], layout, {})
    with pytest.raises(InputError) as raised:
        check_given([step_with(data_dir=Given("WNUT-17"))], layout, {})
    assert str(raised.value).startswith(
        f"{tmp_path}/WNUT-17: no such file or folder, which fine-tuning 'WNUT-17' reads;"
    )
    assert "--data_dir" in str(raised.value)


def test_models_by_name(tmp_path):
    one, two = tmp_path / "one", tmp_path / "x=two"
    one.mkdir()
    two.mkdir()
    assert read_encoders([str(one)], "base") == {"base": str(one)}
    assert read_encoders([f"base={one}", f"large={two}"], "base") == {"base": str(one), "large": str(two)}
    assert read_encoders([str(two)], "base") == {"base": str(two)}
    with pytest.raises(InputError, match=r"--encoder=large=nowhere: no such folder; check the path"):
        read_encoders(["large=nowhere"], "base")
    with pytest.raises(InputError, match="names base a second time"):
        read_encoders([str(one), f"base={two}"], "base")


def test_flags_of_all_trainings():
    assert training_flags(["dtype=bfloat16", "--jit_compile"]) == {"dtype": "bfloat16", "jit_compile": "true"}
    with pytest.raises(
        InputError, match="--training_flags=task_name=x: the training scripts share no flag of that name"
    ):
        training_flags(["task_name=x"])
    with pytest.raises(
        InputError, match="--training_flags=output_dir=x: the experiment sets this flag itself"
    ):
        training_flags(["output_dir=x"])
    with pytest.raises(InputError, match="--training_flags=dtype=float8: must be one of float32"):
        training_flags(["dtype=float8"])
