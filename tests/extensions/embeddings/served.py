"""The options with which the model of a folder is served."""

from official_bert import catalog


def serving_options(model: str, **flags):
    """Returns the options of an export of a model, which is not written."""
    return catalog.options_class("export_saved_model")(model=model, export_dir="", **flags)
