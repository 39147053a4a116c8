"""Names a wrong path of a command before TensorFlow is imported, which takes seconds.

Each command checks its files itself. The functions here make those checks that need no TensorFlow.
A command calls its function only if a flag names a file that does not exist, so that nothing is
read twice. Not every such file is an error: a run without --do_train ignores --train_file.
"""

from official_bert import model_hub
from official_bert.data.records.record_files import expand_records
from official_bert.data.table_formats import expand_paths
from official_bert.data.tables import check_there
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, make_no_checkpoint_error, make_no_model_error
from official_bert.model_source import ModelSource, resolve
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.options.serving import STANDARD, ConversionOptions, PredictOptions
from official_bert.options.shared import ConfigOptions
from official_bert.options.training import PretrainingOptions
from official_bert.tasks import registry


def check_pretraining(options: PretrainingOptions) -> None:
    """Checks the files of a pre-training.

    Args:
        options: the flags of run_pretraining.

    Raises:
        InputError: a file is missing or corrupt, or a flag contradicts the folder of the model.
    """
    source = resolve(options)
    _ = source.config
    expand_records(options.input_file, "input_file")
    if options.eval_input_file:
        expand_records(options.eval_input_file, "eval_input_file")
    _check_start(source)


def check_fine_tuning(options: FineTuningOptions) -> None:
    """Checks the files of a fine-tuning.

    Args:
        options: the flags of a fine-tuning script.

    Raises:
        InputError: a file is missing or corrupt, or a flag contradicts the folder of the model.
    """
    family = registry.find(options.task_name, options.script).family
    source = resolve(options, family)
    _ = source.config, source.tokenizer
    options = source.options
    if not options.search:  # Each run of a search may resume in a folder of its own.
        _check_start(source)
    needed_flags = {
        "train_file": options.do_train,
        "dev_file": options.has_dev_set and options.do_eval,
        "test_file": options.do_predict,
        "predict_file": options.do_predict,
    }
    needed_files = {
        flag: getattr(options, flag)
        for flag, is_needed in needed_flags.items()
        if is_needed and hasattr(options, flag)
    }
    for flag, paths in needed_files.items():
        if paths:
            check_tables(paths, flag)
    data_dir = options.data_dir
    if not data_dir or all(needed_files.values()) or registry.is_outside(family):
        return  # a task of another package may give the name of the folder another meaning
    if not files.is_folder(data_dir):
        raise InputError(f"--data_dir={data_dir}: no such folder; check the path")


def check_prediction(options: PredictOptions) -> None:
    """Checks the input and the model of official-bert predict; a model that is named is downloaded.

    Args:
        options: the flags of the command.

    Raises:
        InputError: one of them is missing.
    """
    if options.input_file != STANDARD:
        check_file(options.input_file)
    check_model(options.model)


def check_model_files(options: ConfigOptions) -> None:
    """Checks the files of a command that completes its flags by the folder of a model.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a file is missing, or a flag contradicts the folder of the model.
    """
    check_named_files(resolve(options).options)


def check_named_files(options: ConfigOptions | ConversionOptions) -> None:
    """Checks the files and the model that the flags of a command name.

    Args:
        options: the flags of the command.

    Raises:
        InputError: one of them is missing.
    """
    for flag in ("bert_config_file", "vocab_file", "input_file"):
        if path := getattr(options, flag, None):
            check_file(path)
    for flag in ("model", "init_checkpoint"):
        if model := getattr(options, flag, None):
            check_checkpoint(model)


def check_tables(paths: str, flag: str) -> None:
    """Checks the tables that a flag names.

    Args:
        paths: the value of the flag: paths and globs with commas between them.
        flag: its name, for the error.

    Raises:
        InputError: one of them is missing.
    """
    for path in expand_paths(paths, flag):
        if path.endswith((".tsv", ".csv")):
            check_there(path)
        check_file(path)


def check_file(path: str) -> None:
    """Raises the error of a missing file, which its reader would raise.

    Args:
        path: the path of the file.

    Raises:
        InputError: there is no such file.
    """
    if not files.exists(path):
        files.open_file(path, "rb")


def _check_start(source: ModelSource):
    """Checks the checkpoint whose weights a training script loads, unless it resumes."""
    if source.path and not source.resumes:
        check_checkpoint(source.path)


def check_model(model: str) -> None:
    """Checks the model of official_bert.Predictor; a model that is named is downloaded.

    Args:
        model: the path or the name of the model.

    Raises:
        InputError: there is no such model.
    """
    path = model_hub.local_path(model)
    if not files.exists(path) and not ModelFolder(path).config_file:
        raise make_no_model_error(path)
    # A path beside a configuration may be the prefix of a checkpoint.
    check_checkpoint(path)


def check_checkpoint(model: str) -> None:
    """Checks the path of a checkpoint; a model that is named is downloaded.

    Args:
        model: the path or the name of the checkpoint. The reader of a file of weights, such as
            model.safetensors, names a missing file itself.

    Raises:
        InputError: there is no such folder, and no checkpoint with this prefix.
    """
    path = model_hub.local_path(model)
    is_weights_file = path.endswith((".safetensors", ".bin", ".json"))
    if not is_weights_file and not model_hub.has_files(path):
        raise make_no_checkpoint_error(path)
