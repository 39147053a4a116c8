"""Names a wrong path of a command before TensorFlow is imported, which takes seconds.

Each command checks its files itself. The functions here make those checks that need no TensorFlow.
A command calls its function only if a flag names a file that does not exist, so that nothing is
read twice. Not every such file is an error: a run without --do_train ignores --train_file.
"""

from official_bert import model_hub
from official_bert.data.records.record_files import expand_records
from official_bert.data.tables import check_there
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.model_dir import make_no_model_error
from official_bert.model_source import resolve
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.options.serving import STANDARD, PredictOptions
from official_bert.options.training import PretrainingOptions
from official_bert.tasks import registry


def check_pretraining(options: PretrainingOptions) -> None:
    """Checks the files of a pre-training.

    Args:
        options: the flags of run_pretraining.

    Raises:
        InputError: a file is missing or corrupt, or a flag contradicts the folder of the model.
    """
    _ = resolve(options).config
    expand_records(options.input_file, "input_file")
    if options.eval_input_file:
        expand_records(options.eval_input_file, "eval_input_file")


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
    is_needed = {
        "train": options.do_train,
        "dev": options.has_dev_set and options.do_eval,
        "test": options.do_predict,
    }
    needed_files = [path for name, path in options.set_files.items() if is_needed[name]]
    for path in needed_files:
        if path:
            check_there(path)
            _check_file(path)
    data_dir = options.data_dir
    if not data_dir or all(needed_files) or registry.is_outside(family):
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
        _check_file(options.input_file)
    path = model_hub.local_path(options.model)
    if not files.exists(path):
        raise make_no_model_error(path)


def _check_file(path: str):
    """Raises the error of a missing file, which its reader would raise."""
    if not files.exists(path):
        files.open_file(path, "rb")
