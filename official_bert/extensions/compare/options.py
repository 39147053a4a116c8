"""The flags of official-bert compare."""

import dataclasses

from official_bert.data.table_formats import expand_paths
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.options.fields import SIZE, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What official-bert compare measures."""

    model: list[str] = option(
        help="The --output_dir of a training script, or several with commas between them, such as "
        "a large and a small model. All must have been trained on the same task."
    )
    output_dir: str = option(
        help="The folder of the results and of the exports. A second run with the same folder "
        "continues the first one."
    )
    dev_file: str | None = option(
        None, basic=True, help="The development set, in the form of the training."
    )
    data_dir: str | None = option(
        None,
        basic=True,
        help="The folder with the development set under its usual name, in place of --dev_file.",
    )
    export_format: list[str] | None = option(
        None,
        basic=True,
        help="The formats to compare, separated by commas, such as saved_model,onnx. The default "
        "is all whose packages are installed.",
    )
    dtype: list[str] | None = option(
        None,
        basic=True,
        help="The types of weights to compare, separated by commas, such as float32,int8. The "
        "default is all that a format can have.",
    )
    num_threads: int | None = option(
        None,
        check=SIZE,
        help="The number of threads of the computation, by default one for each processor.",
    )
    num_rounds: int = option(
        5,
        check=SIZE,
        help="How often the time of each export is measured. The exports are measured in turns, "
        "and the median counts.",
    )


def check_paths(options: CompareOptions) -> None:
    """Check that the folders of the models and the development set exist.

    Args:
        options: the flags of the command.

    Raises:
        InputError: one does not exist, or none is named.
    """
    if not options.dev_file and not options.data_dir:
        raise InputError(
            "--dev_file, --data_dir: the quality is measured on a development set; give one of them"
        )
    if options.dev_file:
        for path in expand_paths(options.dev_file, "dev_file"):
            if not files.exists(path):
                raise InputError(f"--dev_file={path}: no such file; correct the path")
    if options.data_dir and not files.is_folder(options.data_dir):
        raise InputError(f"--data_dir={options.data_dir}: no such folder; correct the path")
