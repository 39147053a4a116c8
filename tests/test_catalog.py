"""The catalog of commands, families, flags and hooks: the core's, those of this package's
extensions, and others'.
"""

import dataclasses
import importlib.metadata
import logging
import pickle
import types

import pytest

from official_bert import catalog, extension
from official_bert.core import CORE
from official_bert.extension import Command, Extension, Family
from official_bert.options.fields import option

SUMMARY = "Made up."


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColourOptions:
    colour: str = option("red", choices=("red", "blue"), help="A colour.")


def paint(text: str) -> str:
    return f"painted {text}"


HERE = __name__


@pytest.fixture
def with_extensions(monkeypatch):
    """A function that replaces the installed extensions of other packages by these records."""
    caches = (
        catalog.extensions,
        catalog.commands,
        catalog.families,
        catalog.options_class,
        catalog.hooks,
    )

    def clear():
        for cached in caches:
            cached.cache_clear()

    def install(*records):
        points = [
            types.SimpleNamespace(value=f"made_up:{n}", load=lambda one=one: one)
            for n, one in enumerate(records)
        ]
        monkeypatch.setattr(catalog, "list_entry_points", lambda: points)
        clear()

    yield install
    monkeypatch.undo()
    clear()


def test_an_extension_adds_a_command_a_family_and_flags(with_extensions):
    command = Command(options=f"{HERE}:ColourOptions", function=f"{HERE}:paint", summary=SUMMARY)
    family = Family(task="official_bert.tasks.tagging.task:TaggingTask", tasks=("colours",))
    with_extensions(
        Extension(
            name="colours",
            summary=SUMMARY,
            commands={"paint": command},
            families={"colours": family},
            options={"run_ner": f"{HERE}:ColourOptions"},
        )
    )
    names = list(catalog.commands())
    assert names[: len(CORE.commands)] == list(CORE.commands)
    assert catalog.commands()["paint"] == command
    assert catalog.load(catalog.commands()["paint"].function)("x") == "painted x"
    assert catalog.families()["colours"] == family

    options_class = catalog.options_class("run_ner")
    assert issubclass(options_class, catalog.load(CORE.commands["run_ner"].options))
    options = options_class(output_dir="out", colour="blue")
    assert pickle.loads(pickle.dumps(options)) == options
    assert catalog.options_part(options, ColourOptions) == ColourOptions(colour="blue")
    # Not of a flag of the same name that the extension has not added.
    assert catalog.options_part(types.SimpleNamespace(colour="blue"), ColourOptions).colour == "red"
    assert not hasattr(catalog.options_class("run_squad")(output_dir="out"), "colour")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MoreColourOptions:
    colour: str = option("red", choices=("red", "blue", "green"), help="A colour, or green.")


def test_an_extension_gives_a_flag_of_the_core_more_values(with_extensions):
    command = Command(options=f"{HERE}:ColourOptions", function=f"{HERE}:paint", summary=SUMMARY)
    with_extensions(
        Extension(name="colours", summary=SUMMARY, commands={"paint": command}),
        Extension(name="green", summary=SUMMARY, options={"paint": f"{HERE}:MoreColourOptions"}),
    )
    (field,) = dataclasses.fields(catalog.options_class("paint"))
    assert field.metadata["choices"] == ("red", "blue", "green")
    assert catalog.options_class("paint")().colour == "red"


def test_hooks_are_called_in_the_order_of_the_records(with_extensions, monkeypatch):
    monkeypatch.setattr(extension, "HOOKS", {"decorate": "text -> text"})
    monkeypatch.setattr(catalog, "HOOKS", extension.HOOKS)
    records = [
        Extension(name=name, summary=SUMMARY, hooks={"decorate": f"{HERE}:paint"})
        for name in ("a", "b")
    ]
    with_extensions(*records)
    assert catalog.hooks("decorate") == (paint, paint)


def test_a_hook_that_the_core_does_not_call_is_refused():
    with pytest.raises(ValueError, match="extension wrong: call_me is no hook"):
        Extension(name="wrong", summary=SUMMARY, hooks={"call_me": f"{HERE}:paint"})
    with pytest.raises(ValueError, match="call_me is no hook"):
        catalog.hooks("call_me")


def test_two_records_must_not_have_the_same_name(with_extensions):
    command = Command(options=f"{HERE}:ColourOptions", function=f"{HERE}:paint", summary=SUMMARY)
    with_extensions(Extension(name="again", summary=SUMMARY, commands={"predict": command}))
    with pytest.raises(ValueError, match="extension again: commands has predict already"):
        catalog.commands()
    with_extensions(*[Extension(name="twice", summary=SUMMARY)] * 2)
    with pytest.raises(ValueError, match="two extensions are called twice"):
        catalog.extensions()


def test_a_broken_extension_of_another_package_is_skipped_with_a_warning(
    with_extensions, caplog, monkeypatch
):
    caplog.set_level(logging.WARNING)

    def load():
        raise ImportError("No module named 'colours'")

    with_extensions("no record")
    broken = types.SimpleNamespace(value="colours:EXTENSION", load=load)
    points = catalog.list_entry_points()
    monkeypatch.setattr(catalog, "list_entry_points", lambda: [broken, *points])
    names = [record.name for record in catalog.extensions()]
    assert names == sorted(names)
    assert (
        "The extension colours:EXTENSION cannot be loaded (ImportError: No module named "
        "'colours'); install it again, or uninstall it"
    ) in caplog.messages
    assert (
        "The extension made_up:0 is no Extension of official_bert/extension.py" in caplog.messages
    )


def test_the_entry_points_of_other_packages_are_read(tmp_path, monkeypatch):
    folder = tmp_path / "colours-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: colours\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        f"[{catalog.ENTRY_POINTS}]\ncolours = colours:EXTENSION\n"
    )
    (tmp_path / "colours.py").write_text(
        "from official_bert.extension import Extension\nEXTENSION = Extension(name='colours', "
        "summary='Made up.')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.metadata.MetadataPathFinder().invalidate_caches()
    catalog.extensions.cache_clear()
    try:
        assert catalog.extensions()[-1].name == "colours"
    finally:
        monkeypatch.undo()
        catalog.extensions.cache_clear()
