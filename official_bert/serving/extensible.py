"""Objects to which extensions add methods."""

import html
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from official_bert import catalog


class Extensible:
    """An object with the methods of its class and those of extensions, which `dir` lists.

    Attributes:
        methods_hook: the name of the hook of `extension.HOOKS` that returns the methods.
    """

    methods_hook: ClassVar[str]

    def __getattr__(self, name: str) -> Any:
        """Returns a method of an extension, bound to the object."""
        _check_names(type(self))
        return catalog.bind_member(self.methods_hook, self, name)

    def describe(self) -> Mapping[str, object]:
        """Returns what the object is, for people: the name of a property -> its value."""
        return {}

    def __repr__(self) -> str:
        properties = [f"{name}={value!r}" for name, value in self.describe().items()]
        return f"{type(self).__name__}({', '.join(properties)})"

    def _repr_html_(self) -> str:
        """Returns the properties as a table, for notebooks."""
        rows = [
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
            for name, value in self.describe().items()
        ]
        return f"<b>{type(self).__name__}</b><table>{''.join(rows)}</table>"

    def __dir__(self) -> Iterable[str]:
        _check_names(type(self))
        return [*super().__dir__(), *catalog.members(self.methods_hook)]


def _check_names(extended: type[Extensible]):
    """Refuses a method of an extension that a method of the class would hide."""
    for name in catalog.members(extended.methods_hook):
        if hasattr(extended, name):
            raise ValueError(f"{extended.__name__} has a method {name} already; rename the other")
