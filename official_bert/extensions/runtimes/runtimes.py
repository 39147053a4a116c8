"""The runtimes of exports: a class for each format, in the form of serving/exported_model.py's
Runtime.
"""

from collections.abc import Callable

from official_bert import catalog
from official_bert.options.serving import SAVED_MODEL
from official_bert.serving.export_format import format_runtimes
from official_bert.serving.exported_model import Runtime, SavedModelRuntime

# Format -> its main runtime.
RUNTIMES: dict[str, Callable[[str, int | None], Runtime]] = {SAVED_MODEL: SavedModelRuntime}
for _runtime in format_runtimes():
    if _runtime.is_main:
        RUNTIMES[_runtime.export_format] = catalog.load(_runtime.runtime_class)
