"""The house's import rules, held by parsing every source file: nothing is imported to test them.

Modules are dotted names below `official_bert`, such as "data.pretraining.masks"; a room is the
first part of one.
"""

import ast
import collections
import functools
import graphlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.scripts import run_interpreter
from tests.shared import ROOT

# From top to bottom. A module may import from any line below its own, and from its own room.
LINES = (
    {"extensions"},
    {"cli"},
    {"commands", "compat"},
    {"fine_tuning"},
    {"serving"},
    {"training", "tasks"},
    {"model_io"},
    {"optimization", "modeling"},
    {"model_source"},
    {"checkpoints"},
    {"data"},
    {"graph_text", "model_dir"},
    {"features", "config", "tokenization", "metrics"},
    {"model_hub", "model_types", "tokenizer_call"},
    {"tokenizer_config"},
    {"tokenizer_files", "word_cache"},
    {"added_tokens"},
    {"characters"},
    {"options", "catalog"},
    {"core"},
    {"extension"},
    {"io", "version"},
)
LEVEL = {room: len(LINES) - number for number, line in enumerate(LINES) for room in line}

SINGLE_IMPORTER = {
    "pyarrow": "data.table_formats",
    "tensorflow_text": "data.pretraining.vocabulary",
    "rich": "io.progress",
    "safetensors": "checkpoints.huggingface",
    "tensorflow_serving": "serving.signatures",
    "huggingface_hub": "model_hub",
    "ray": "extensions.distributed_data.ray_engine",
    "apache_beam": "extensions.distributed_data.beam_engine",
    "fsspec": "io.fsspec_files",
}
# Extensions do not import each other, so that each has a module that imports the package.
IMPORTERS_IN_EXTENSIONS = {
    "sklearn": ("extensions.few_shot.head", "extensions.probing.metrics"),
}
_LIGHT_ROOMS = """
added_tokens catalog characters cli config core data extension features io metrics
model_dir model_hub model_source model_types
options tasks
tokenization tokenizer_call tokenizer_config tokenizer_files
word_cache
"""
LIGHT_ROOMS = _LIGHT_ROOMS.split()
# Of the light rooms; what makes instances loads none of them.
HEAVY_MODULES = ("data.pretraining.vocabulary", "data.records.pretraining_input")
# What the registry or an export imports late; a family may also be one file.
HEAVY_IN_A_FAMILY = (
    "task",
    "graph_answers",
    "objective",
    "losses",
    "output_kinds",
    "sentence_encoder",
)
LIGHT_TASKS = ("tasks", "tasks.base", "tasks.registry", "tasks.clients")
HEAVY = ("tensorflow", "keras", "tensorflow_text")
# The modules of the models that name TensorFlow. The others compute with keras.ops.
TENSORFLOW_MODULES = (
    "modeling.layers",
    "modeling.cpu_layers",
    "modeling.dropout_masks",
    "modeling.vocabulary_loss",
)
MAX_LINES = 500  # without docstrings, which no budget counts
# Of the whole package: whoever raises them has looked for what can go instead.
MAX_FILES = 466

WITH_IMPORTER, LATE, NEVER = (
    "with its importer",
    "late in a function",
    "never, but by type checkers",
)


class Import(NamedTuple):
    """An imported module, without "official_bert." if it is ours; when it is loaded is one of
    the words above.
    """

    module: str
    ours: bool
    when: str


@functools.cache
def imports_of(source: str, modules: frozenset[str]) -> list[Import]:
    """Everything a source imports; by our own `modules`, `from official_bert.data import
    masking` is data.masking.
    """
    found = []

    def add(name: str, when: str):
        ours = name.split(".")[0] == "official_bert"
        found.append(
            Import(name.removeprefix("official_bert").lstrip(".") if ours else name, ours, when)
        )

    def visit(node: ast.AST, when: str):
        match node:
            case ast.Import():
                for alias in node.names:
                    add(alias.name, when)
            case ast.ImportFrom():
                assert node.level == 0, "imports are absolute"
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    ours = node.module.split(".")[0] == "official_bert"
                    is_member = (
                        ours and inner.removeprefix("official_bert.") not in modules | LEVEL.keys()
                    )
                    add(node.module if is_member else inner, when)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                when = LATE
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                when = NEVER
        for child in ast.iter_child_nodes(node):
            visit(child, when)

    visit(ast.parse(source), WITH_IMPORTER)
    return found


@functools.cache
def has_docstring(source: str) -> bool:
    return ast.get_docstring(ast.parse(source)) is not None


def room_of(module: str) -> str:
    return module.split(".")[0]


def extension_of(module: str) -> str:
    """The name of the extension that a module belongs to; "" for the folder of the extensions."""
    return ".".join(module.split(".")[1:2])


def is_light(module: str) -> bool:
    """Whether loading the module must not load TensorFlow: that costs 5 s and 550 MB, in every
    worker process.
    """
    room = room_of(module)
    name = module.split(".")[-1]
    if room == "extensions":  # the catalog reads the record, and --help the options
        return module.count(".") < 2 or name == "options"
    if room == "tasks" and module not in LIGHT_TASKS:
        is_family = (ROOT / "official_bert" / "tasks" / f"{name}.py").exists()
        if is_family or name in HEAVY_IN_A_FAMILY:
            return False
    return (not module or room in LIGHT_ROOMS) and module not in HEAVY_MODULES


def sources() -> dict[str, str]:
    """Text of every module of the package; a room's `__init__` goes by the room's name."""
    package = ROOT / "official_bert"
    texts = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        texts[".".join(parts).removesuffix("__init__").rstrip(".")] = path.read_text(
            encoding="utf-8"
        )
    return texts


def offences(texts: dict[str, str]) -> Iterator[str]:
    """One sentence for each breach of the rules in some modules, whose sources are given by
    their names.
    """
    modules = frozenset(texts)
    loaded = {}
    for module, source in texts.items():
        imported = imports_of(source, modules)
        loaded[module] = {one.module for one in imported if one.ours and one.when != NEVER} - {
            module
        }
        yield from breaches_of_lines(module, imported)
        yield from breaches_of_outside_packages(module, imported)
        if not has_docstring(source):
            yield f"{module}: has no docstring"
        if num_lines(source) > MAX_LINES:
            yield f"{module}: has more than {MAX_LINES} lines"
    yield from cycles(loaded)


def num_lines(source: str) -> int:
    """The number of lines of a source without its docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    num_docstring_lines = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            num_docstring_lines += docstring.end_lineno - docstring.lineno + 1
    return source.count("\n") - num_docstring_lines


def breaches_of_lines(module: str, imported: list[Import]) -> Iterator[str]:
    room = room_of(module)
    if room in ("", "__main__"):
        return  # the package's own __init__ resolves its names by importlib
    if room not in LEVEL:
        yield f"{module}: is in no room of the design"
        return
    for one in imported:
        if not one.ours:
            continue
        other = room_of(one.module)
        if other not in LEVEL:
            yield f"{module}: imports the package itself or an unknown room ({one.module!r})"
        elif other == room:
            if room == "extensions" and extension_of(one.module) not in ("", extension_of(module)):
                yield f"{module}: imports {one.module}, of another extension"
        elif LEVEL[other] >= LEVEL[room]:
            yield f"{module}: imports {one.module}, which is not on a lower line"
        elif room == "training" and other in ("tasks", "data"):
            yield f"{module}: imports {one.module}; training is handed functions"


def breaches_of_outside_packages(module: str, imported: list[Import]) -> Iterator[str]:
    room = room_of(module)
    for one in imported:
        if one.ours:
            continue
        package = one.module.split(".")[0]
        if SINGLE_IMPORTER.get(package, module) != module:
            yield f"{module}: imports {package}, which is for {SINGLE_IMPORTER[package]} alone"
        if module not in IMPORTERS_IN_EXTENSIONS.get(package, (module,)):
            names = " and ".join(IMPORTERS_IN_EXTENSIONS[package])
            yield f"{module}: imports {package}, which is for {names}"
        if package in HEAVY and one.when == WITH_IMPORTER and is_light(module):
            yield f"{module}: imports {package} with itself, not late"
        is_tensorflow_module = room != "modeling" or module in TENSORFLOW_MODULES
        if package == "tensorflow" and not is_tensorflow_module:
            names = ", ".join(TENSORFLOW_MODULES)
            yield f"{module}: names TensorFlow, which only these modules do: {names}"
        if room != "cli" and package == "absl" and not one.module.startswith("absl.logging"):
            yield f"{module}: imports {one.module}; flags are for scripts, absl.logging is for all"
        if package in ("torch", "transformers"):
            yield f"{module}: imports {package}, which is for benchmarks"


def cycles(loaded: dict[str, set[str]]) -> Iterator[str]:
    """A circle of modules that import each other, late or not, if there is one: each module is
    given its imports.
    """
    try:
        graphlib.TopologicalSorter(loaded).prepare()
    except graphlib.CycleError as error:
        # Each is imported by the next.
        yield "imports in a circle: " + " -> ".join(reversed(error.args[1]))


def test_the_package_keeps_the_rules():
    assert list(offences(sources())) == []


def test_the_package_stays_small_and_a_file_name_has_one_meaning():
    texts = sources()
    assert len(texts) <= MAX_FILES
    # The families of tasks have the same parts, and so have the extensions.
    paths = (ROOT / "official_bert").rglob("*.py")
    names = [path.name for path in paths if not {"tasks", "extensions"} & {*path.parts}]
    doubled = [name for name, count in collections.Counter(names).items() if count > 1]
    assert doubled == ["__init__.py"]


def test_light_modules_load_no_tensorflow():
    names = [f"official_bert.{module}".rstrip(".") for module in sources() if is_light(module)]
    code = (
        f"import sys, {', '.join(names)}; print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert run_interpreter("-c", code).stdout == "[]\n"


def test_scripts_are_thin_and_import_only_the_commands():
    """Loading a script loads no runner: TensorFlow comes in with it. `compat` finds the
    original's names when asked.
    """
    modules = frozenset(sources())
    for path in sorted(ROOT.glob("*.py")):
        name, source = path.name, path.read_text(encoding="utf-8")
        assert source.count("\n") <= 60, f"{name} is more than wiring"
        assert has_docstring(source), f"{name} has no docstring"
        for one in imports_of(source, modules):
            if one.ours and one.when == WITH_IMPORTER:
                assert room_of(one.module) == "cli" or one.module == "compat", (
                    f"{name}: imports {one.module} too early"
                )
            assert one.module.split(".")[0] not in HEAVY, f"{name}: imports {one.module}"


def test_every_folder_of_tests_is_a_room():
    tests = ROOT / "tests"
    rooms = {"", "examples", "golden", "hostile", "oracles"}
    for path in sorted(tests.rglob("test_*.py")):
        folder = path.parent.relative_to(tests)
        assert (ROOT / "official_bert" / folder).is_dir() or str(folder) in rooms, path


@pytest.mark.parametrize(
    ("module", "source", "offence"),
    [
        (
            "data.masking",
            "from official_bert.training import loop",
            "training.loop, which is not on a lower line",
        ),
        (
            "data.masking",
            "def f():\n    import official_bert.modeling",
            "modeling, which is not on a lower",
        ),
        (
            "config",
            "from official_bert import tokenization",
            "tokenization, which is not on a lower line",
        ),
        ("modeling.bert", "from official_bert import BertConfig", "imports the package itself"),
        ("training.loop", "from official_bert.data import masking", "training is handed functions"),
        ("cellar.wine", "x = 1", "is in no room"),
        ("tasks.pretraining", "import keras", "imports keras with itself, not late"),
        ("modeling.heads", "def f():\n    import tensorflow", "which only these modules do"),
        (
            "checkpoints.tf1",
            "from safetensors.numpy import load",
            "for checkpoints.huggingface alone",
        ),
        ("training.loop", "from absl.flags import FLAGS", "flags are for scripts"),
        ("training.loop", "import torch", "for benchmarks"),
        (
            "tasks.base",
            "from official_bert.extensions.other import plan",
            "plan, which is not on a lower line",
        ),
        (
            "extensions.new.model",
            "from official_bert.extensions.other import plan",
            "plan, of another extension",
        ),
        ("training.loop", "x = 1\n" * 600, "more than 500 lines"),
    ],
)
def test_the_rules_bite(module, source, offence):
    texts = sources() | {
        "extensions.other": '"""Another extension."""\n',
        "extensions.other.plan": '"""One of its modules."""\n',
        module: f'"""The module under test."""\n{source}\n',
    }
    assert [
        found for found in offences(texts) if found.startswith(f"{module}: ") and offence in found
    ]


def test_a_missing_docstring_is_found():
    assert list(offences({"data.masking": "x = 1\n"})) == ["data.masking: has no docstring"]


def test_a_circle_is_found():
    late = "class C:\n    def f(self):\n        from official_bert.data.first import x\n"
    first = '"""A."""\nfrom official_bert.data import second\n'
    (found,) = offences({"data.first": first, "data.second": f'"""B."""\n{late}'})
    assert found in (
        "imports in a circle: data.first -> data.second -> data.first",
        "imports in a circle: data.second -> data.first -> data.second",
    )


def test_harmless_imports_pass():
    source = """\
'''A legend.'''
from typing import TYPE_CHECKING
from absl import logging
from official_bert.io import files
from official_bert.io.errors import InputError
if TYPE_CHECKING:
    from official_bert.modeling import BertModel
def late():
    import tensorflow
"""
    assert list(offences({"tasks.made_up": source})) == []
