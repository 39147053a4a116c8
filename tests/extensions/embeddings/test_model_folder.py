"""A folder that knows how it makes its vectors: flags that contradict it are refused, except to
train from it.
"""

import pytest

from official_bert import model_dir
from official_bert.config import BertConfig
from official_bert.extensions.embeddings.options import EMBEDDING, EmbeddingOptions
from official_bert.extensions.embeddings.settings import EmbeddingSettings
from official_bert.extensions.embeddings.task import EmbeddingTask
from official_bert.io.errors import InputError
from official_bert.model_source import resolve
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy
from tests.extensions.embeddings.served import serving_options

SETTINGS = {"pooling": "cls", "normalize": False, "projection": 24, "max_seq_length": 16}


@pytest.fixture
def trained(tmp_path):
    """The folder of a model without weights, which no test here reads."""
    vocab_file = toy.write_vocabulary(tmp_path)
    record = model_dir.TaskRecord(EMBEDDING, EMBEDDING, SETTINGS)
    config = BertConfig.from_dict(toy.BERT_CONFIG)
    model_dir.write(
        str(tmp_path / "trained"), config, vocab_file, TokenizerConfig(True, None, 48), record
    )
    return str(tmp_path / "trained")


USES = {
    "an evaluation": lambda model, **flags: EmbeddingOptions(
        output_dir="absent", do_eval=True, model=model, **flags
    ),
    "an export": lambda model, **flags: serving_options(model, task_name=EMBEDDING, **flags),
}
OTHERS = [
    ({"pooling": "mean"}, "cls"),
    ({"normalize": True}, "False"),
    ({"max_seq_length": 32}, "16"),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("flags", "recorded"), OTHERS)
def test_flags_that_contradict_a_training_are_refused(trained, use, flags, recorded):
    ((name, value),) = flags.items()
    with pytest.raises(
        InputError,
        match=f"^--{name}={value}: .*task.json says {recorded}, with which the model was",
    ):
        resolve(USES[use](trained, **flags), EMBEDDING)


@pytest.mark.parametrize("use", USES)
def test_flags_that_agree_with_a_training_are_accepted(trained, use):
    same = {name: value for name, value in SETTINGS.items() if name != "projection"}
    for options in (USES[use](trained), USES[use](trained, **same)):
        completed = resolve(options, EMBEDDING).options
        assert {name: getattr(completed, name) for name in same} == same


def test_another_projection_is_refused_in_an_evaluation(trained):
    with pytest.raises(InputError, match=r"^--projection=8: .*task.json says 24"):
        resolve(USES["an evaluation"](trained, projection=8), EMBEDDING)


def test_a_training_from_the_folder_may_pool_otherwise(trained):
    options = EmbeddingOptions(
        output_dir="absent", do_train=True, model=trained, pooling="mean", projection=8
    )
    completed = resolve(options, EMBEDDING).options
    assert (completed.pooling, completed.projection) == ("mean", 8)


def test_modules_of_sentence_transformers_are_contradicted_by_a_training_only(tmp_path):
    folder = toy.write_sentence_modules(tmp_path)  # the mean, and no Normalize

    def task(**flags):
        return EmbeddingTask.from_settings(
            None, EmbeddingSettings.from_values({"init_checkpoint": str(folder), **flags})
        )

    assert (task().pooling, task().normalize) == ("mean", False)
    assert task(pooling="mean", normalize=False).pooling == "mean"
    for flags, words in (
        ({"pooling": "cls"}, "=cls: .* say mean"),
        ({"normalize": True}, "=True: .* say False"),
    ):
        with pytest.raises(
            InputError, match=f"^--{next(iter(flags))}{words}, with which the model was trained"
        ):
            task(**flags)
        task(**flags, do_train=True)


@pytest.mark.parametrize("model", [None, "theirs"])
@pytest.mark.parametrize("flags", [{"do_train": True}, {"do_train": False, "pooling": "cls"}])
def test_a_run_in_its_folder_has_the_vectors_of_the_folder(tmp_path, trained, model, flags):
    """Whichever model it began with, whose modules here say mean, and whether a flag names that
    one again.
    """
    folder = tmp_path / "theirs"
    folder.mkdir()
    toy.write_sentence_modules(folder)
    settings = {name: value for name, value in SETTINGS.items() if name != "projection"}
    model_dir.write_record(trained, model_dir.TaskRecord(EMBEDDING, EMBEDDING, settings))
    (tmp_path / "trained" / "checkpoint").touch()
    task = EmbeddingTask.from_settings(
        None,
        EmbeddingSettings.from_values(
            {"init_checkpoint": model and str(folder), "output_dir": trained, **flags}
        ),
    )
    assert (task.pooling, task.normalize) == ("cls", False)


def test_texts_that_the_library_lower_cases_first_are_warned_of(tmp_path, caplog):
    folder = toy.write_sentence_modules(tmp_path)
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    EmbeddingTask.from_settings(
        None, EmbeddingSettings.from_values({"init_checkpoint": str(folder), "do_train": True})
    )
    assert not caplog.records
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    EmbeddingTask.from_settings(
        None, EmbeddingSettings.from_values({"init_checkpoint": str(folder), "do_train": True})
    )
    assert (
        "has do_lower_case beside a cased tokenizer, which the training leaves out" in caplog.text
    )


def test_a_teacher_that_is_no_model_is_named_by_its_flag(tmp_path):
    task = EmbeddingTask.from_settings(
        None, EmbeddingSettings.from_values({"loss": "mse", "teacher": str(tmp_path / "none")})
    )
    with pytest.raises(InputError, match=r"^--teacher=.*/none: "):
        task._compute_targets(["a text"])


@pytest.mark.parametrize("widths", ["8,8,8", "8,08", "0", "8,half", "²", "٣", "9" * 5000])
def test_widths_are_different_positive_numbers(widths):
    (field,) = (
        field
        for field in EmbeddingOptions.__dataclass_fields__.values()
        if field.name == "matryoshka"
    )
    is_valid, sentence = field.metadata["check"]
    assert is_valid(["8", "4"])
    assert not is_valid(widths.split(","))
    assert sentence == "must be different positive whole numbers, separated by commas"
