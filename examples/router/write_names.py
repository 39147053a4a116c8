"""Writes names.h, the names of the tensors of an export, with which router.c is compiled.

    python examples/router/write_names.py exports/guard_text/1 > examples/router/names.h

The export is one of a classifier that reads raw text (`--export_text`).
"""

import pathlib
import sys

from tensorflow.core.protobuf import saved_model_pb2


def describe(tensor) -> str:
    """Returns the operation and the index of a tensor, such as `"serving_text_text_a", 0`."""
    operation, _, index = tensor.name.partition(":")
    return f'"{operation}", {index}'


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python write_names.py FOLDER_OF_A_VERSION")
    content = pathlib.Path(sys.argv[1], "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    signature = graph.signature_def.get("serving_text")
    if signature is None or not {"label", "probabilities"} <= set(signature.outputs):
        sys.exit(
            f"{sys.argv[1]}: is no export of a classifier with one label that reads raw text; make "
            "one with official-bert export_saved_model --export_text"
        )
    inputs = [describe(signature.inputs[name]) for name in sorted(signature.inputs)]
    print("#define INPUTS", ", ".join(f"{{{one}}}" for one in inputs))
    print("#define LABEL", describe(signature.outputs["label"]))
    print("#define PROBABILITIES", describe(signature.outputs["probabilities"]))


if __name__ == "__main__":
    main()
