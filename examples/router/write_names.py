"""Writes the names of the tensors of an export: names.h for router.c and router.go, or Names.java.

    python examples/router/write_names.py exports/guard_text/1 > examples/router/names.h
    python examples/router/write_names.py exports/guard_text/1 --java > examples/router/Names.java

The export is one of a classifier that reads raw text (`--export_text`).
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from tensorflow.core.protobuf import saved_model_pb2


def format_header(inputs: Sequence[str], label: str, probabilities: str) -> str:
    """Returns names.h, in which a tensor is its operation and its index."""

    def describe(name: str) -> str:
        operation, _, index = name.partition(":")
        return f'"{operation}", {index}'

    pairs = ", ".join(f"{{{describe(name)}}}" for name in inputs)
    return f"""\
#define INPUTS {pairs}
#define LABEL {describe(label)}
#define PROBABILITIES {describe(probabilities)}
"""


def format_java(inputs: Sequence[str], label: str, probabilities: str) -> str:
    """Returns Names.java, in which a tensor is a text such as `"serving_text_text_a:0"`."""
    texts = ", ".join(f'"{name}"' for name in inputs)
    return f"""\
class Names {{
  static final String[] INPUTS = {{{texts}}};
  static final String LABEL = "{label}";
  static final String PROBABILITIES = "{probabilities}";
}}
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="a version's folder, with saved_model.pb")
    parser.add_argument("--java", action="store_true", help="write Names.java instead of names.h")
    flags = parser.parse_args()
    try:
        content = (flags.folder / "saved_model.pb").read_bytes()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}; pass the folder of an exported version")
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    signature = graph.signature_def.get("serving_text")
    if signature is None or not {"label", "probabilities"} <= set(signature.outputs):
        sys.exit(
            f"{flags.folder}: is no export of a classifier with one label that reads raw text; "
            "make one with official-bert export_saved_model --export_text"
        )
    inputs = [signature.inputs[name].name for name in sorted(signature.inputs)]
    format_names = format_java if flags.java else format_header
    text = format_names(
        inputs=inputs,
        label=signature.outputs["label"].name,
        probabilities=signature.outputs["probabilities"].name,
    )
    print(text, end="")


if __name__ == "__main__":
    main()
