"""Objects to which extensions add methods."""

import types
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from official_bert import catalog


class Extensible:
    """An object with the methods of its class and those of extensions, which `dir` lists.

    Attributes:
        methods_hook: the name of the hook of `extension.HOOKS` that returns the methods.
    """

    methods_hook: ClassVar[str]

    def __getattr__(self, name: str) -> Any:
        """Returns a method of an extension."""
        if function := _extension_methods(type(self)).get(name):
            return types.MethodType(function, self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_extension_methods(type(self))]


def _extension_methods(extended: type[Extensible]) -> Mapping[str, Callable]:
    """Returns the methods that extensions add to a class, by name."""
    methods: dict[str, Callable] = {}
    for hook in catalog.hooks(extended.methods_hook):
        for name, function in hook().items():
            if name in methods or hasattr(extended, name):
                raise ValueError(
                    f"two methods of {extended.__name__} are called {name}; rename one of them"
                )
            methods[name] = function
    return methods
