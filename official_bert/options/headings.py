"""The headings under which --help lists the flags: by the options class that has a field, or by what the flag is."""

import dataclasses

from official_bert.options.data_files import DataFilesOptions
from official_bert.options.distribution import DistributionOptions
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.options.model_files import ConfigOptions, ModelOptions, TokenizerOptions
from official_bert.options.optimization import OptimizationOptions
from official_bert.options.precision import PrecisionOptions
from official_bert.options.reporting import ReportingOptions
from official_bert.options.search import SearchOptions
from official_bert.options.training import TrainingOptions
from official_bert.options.tsv import TsvOptions

NEEDED, MODEL, THIS_SCRIPT, COMMON = "Needed", "The model", "This script", "Common to the training scripts"
TSV, SEARCH, DEVICES, OTHERS = "With --task_name=tsv", "Search", "Devices", "The original's others"
ORDER = (NEEDED, MODEL, THIS_SCRIPT, TSV, COMMON, SEARCH, DEVICES, OTHERS)

_OF_CLASSES = {
    ModelOptions: MODEL,
    ConfigOptions: MODEL,
    TokenizerOptions: MODEL,
    TrainingOptions: COMMON,
    FineTuningOptions: COMMON,
    DataFilesOptions: COMMON,
    SearchOptions: SEARCH,
    DistributionOptions: DEVICES,
    OptimizationOptions: COMMON,
    PrecisionOptions: COMMON,
    ReportingOptions: COMMON,
    TsvOptions: TSV,
}


def is_required(field: dataclasses.Field) -> bool:
    """Tells whether a flag must be given."""
    return field.default is dataclasses.MISSING


def heading_of(options_class: type, field: dataclasses.Field) -> str:
    """Returns the heading of a flag, one of ORDER.

    Args:
        options_class: the options class of a script.
        field: one of its fields, or of those that it inherits.
    """
    if is_required(field):
        return NEEDED
    if field.metadata["refused"]:
        return OTHERS
    if field.name == "init_checkpoint":
        return MODEL
    defined_in = next(
        cls for cls in options_class.__mro__ if field.name in vars(cls).get("__annotations__", ())
    )
    return _OF_CLASSES.get(defined_in, THIS_SCRIPT)
