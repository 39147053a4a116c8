"""Imports TensorFlow and Keras for a command in half of the time that they usually take.

Keras imports packages such as scikit-learn and matplotlib wherever they are installed, for features
that no command uses. A command imports Keras without them. Only the command line calls `install`:
`import official_bert` in another program leaves the imports of that program as they are.
"""

import contextlib
import gc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# A package that Keras or TensorFlow imports if it is installed -> the features that need it. All of
# these imports are in a `try` that allows for a missing package.
UNUSED_PACKAGES: Mapping[str, str] = types.MappingProxyType(
    {
        "IPython": "keras.saving.KerasFileEditor in a notebook",
        "matplotlib": "keras.visualization",
        "pandas": "DataFrames as inputs of keras.Model.fit",
        "scipy": "sparse matrices as inputs of keras.Model.fit",
        "sklearn": "keras.wrappers",
    }
)
_IMPORTERS = ("tensorflow", "keras")


def install() -> None:
    """Let this process import TensorFlow and Keras without the packages that they do not need.

    The packages are missing only during these two imports. Whatever imports them itself, before or
    afterwards, gets them.
    """
    if not any(isinstance(finder, _LeanFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LeanFinder())


class _LeanFinder:
    """Finds TensorFlow and Keras, and changes how their modules are executed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of TensorFlow or Keras; None for every other module.

        Args:
            name: the full name of the module.
            path: the folders of its package; None for a module without a package.
            target: the module that is loaded again, if there is one.
        """
        if name not in _IMPORTERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_without_packages(module: types.ModuleType) -> None:
            with without_unused_packages():
                execute(module)

        spec.loader.exec_module = execute_without_packages
        return spec


@contextlib.contextmanager
def without_unused_packages() -> Iterator[None]:
    """A context in which the packages that are not loaded yet cannot be imported.

    The garbage collector rests, too: an import makes no garbage, but a million objects that the
    collector would look through several times. What is imported lives as long as the process, so
    the collector never looks at it again.
    """
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in UNUSED_PACKAGES if name not in modules]
    for name in hidden:
        modules[name] = None  # the import of such a module fails as if it were not installed
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
        if was_enabled:
            gc.freeze()
            gc.enable()
