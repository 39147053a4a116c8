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
        class_name = type(self).__name__
        properties = [f"{name}={value!r}" for name, value in self.describe().items()]
        return f"{class_name}({', '.join(properties)})"

    def _repr_html_(self) -> str:
        """Returns the properties as a table, for notebooks."""
        class_name = type(self).__name__
        parts = [f"<b>{class_name}</b><table>"]
        for name, value in self.describe().items():
            shown_name = html.escape(name)
            shown_value = html.escape(str(value))
            row = f"<tr><th>{shown_name}</th><td>{shown_value}</td></tr>"
            parts.append(row)
        parts.append("</table>")
        return "".join(parts)

    def __dir__(self) -> Iterable[str]:
        _check_names(type(self))
        return [*super().__dir__(), *catalog.members(self.methods_hook)]


def _check_names(extended: type[Extensible]):
    """Refuses a method of an extension that a method of the class would hide."""
    for name in catalog.members(extended.methods_hook):
        if hasattr(extended, name):
            raise ValueError(f"{extended.__name__} has a method {name} already; rename the other")
