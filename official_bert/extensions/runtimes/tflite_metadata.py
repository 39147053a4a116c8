"""Writes TFLite metadata: what a model file's tensors mean, for MediaPipe's text tasks.

In: the bytes of a TFLite model, and the names of its tensors and files. Out: the bytes of the same
model with two additions:

- The entry TFLITE_METADATA of the model's metadata. Its buffer has a flatbuffer with the tables
  below, of which this module writes what a text model needs.
- A zip archive at the end of the file, with the vocabulary and the labels.

The tables are those of TFLite's metadata schema, version 1.1.0. A field has a slot, the place of
its declaration in the table, and a union has two: its type and its value.

    table              slot  field                     value
    ModelMetadata         0  name                      string
                          1  description               string
                          3  subgraph_metadata         [SubGraphMetadata]
                          7  min_parser_version        string
    SubGraphMetadata      2  input_tensor_metadata     [TensorMetadata]
                          3  output_tensor_metadata    [TensorMetadata]
                          5  input_process_units       [ProcessUnit]
    TensorMetadata        0  name                      string
                          1  description               string
                          6  associated_files          [AssociatedFile]
    AssociatedFile        0  name                      string
                          1  description               string
                          2  type                      byte: 2 for labels, 5 for a vocabulary
    ProcessUnit           0  options_type              byte: 4 for BertTokenizerOptions
                          1  options                   BertTokenizerOptions
    BertTokenizerOptions  0  vocab_file                [AssociatedFile]
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import flatbuffers
from flatbuffers import encode, number_types, packer
from flatbuffers.table import Table

NAME = "TFLITE_METADATA"
IDENTIFIER = b"M001"
MODEL_IDENTIFIER = b"TFL3"
MIN_PARSER_VERSION = "1.1.0"
LABELS_TYPE = 2  # AssociatedFileType.TENSOR_AXIS_LABELS
VOCABULARY_TYPE = 5  # AssociatedFileType.VOCABULARY
BERT_TOKENIZER_TYPE = 4  # ProcessUnitOptions.BertTokenizerOptions

# The slots of the table Model of TFLite's schema, version 3, that this module reads or replaces.
_VERSION = 0
_SUBGRAPHS = 2
_BUFFERS = 4
_METADATA = 6
# The slots of its tables SubGraph and Tensor that this module reads.
_TENSORS = 0
_INPUTS = 1
_TENSOR_NAME = 3
_ALIGNMENT = 64  # bytes; runtimes read the weights in place
# The time of the files in the archive, so that two exports of a model have equal bytes.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


class TensorNote(NamedTuple):
    """What the metadata has about an input or an output.

    Attributes:
        name: the name that readers look for.
        description: a sentence for people.
        labels_file: the file in the archive with a label on each line; "" for no labels.
    """

    name: str
    description: str
    labels_file: str = ""


class ModelNote(NamedTuple):
    """What the metadata has about a model.

    Attributes:
        name: the name of the model.
        description: a sentence for people.
        inputs: the inputs in the order of the model.
        outputs: the outputs in the order of the model.
        vocab_file: the file in the archive with the vocabulary of the BERT tokenizer.
    """

    name: str
    description: str
    inputs: Sequence[TensorNote]
    outputs: Sequence[TensorNote]
    vocab_file: str


def write_metadata(model: bytes, note: ModelNote, files: Mapping[str, bytes]) -> bytes:
    """Return a model with metadata and an archive of files.

    Args:
        model: the content of a TFLite file.
        note: what the metadata has about the model.
        files: the content of the files of the archive, by name.
    """
    content = io.BytesIO()
    content.write(_add_metadata(model, build_metadata(note)))
    with zipfile.ZipFile(content, "a", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), data)
    return content.getvalue()


# The flatbuffer of the metadata.


def build_metadata(note: ModelNote) -> bytes:
    """Return the flatbuffer ModelMetadata.

    Args:
        note: its content.
    """
    builder = flatbuffers.Builder()
    vocabulary = _add_file(builder, note.vocab_file, "The vocabulary.", VOCABULARY_TYPE)
    tokenizer = _add_table(builder, {0: _add_vector(builder, [vocabulary])})
    process_unit = _add_table(builder, {1: tokenizer}, {0: BERT_TOKENIZER_TYPE})
    subgraph = _add_table(
        builder,
        {
            2: _add_tensors(builder, note.inputs),
            3: _add_tensors(builder, note.outputs),
            5: _add_vector(builder, [process_unit]),
        },
    )
    metadata = _add_table(
        builder,
        {
            0: builder.CreateString(note.name),
            1: builder.CreateString(note.description),
            3: _add_vector(builder, [subgraph]),
            7: builder.CreateString(MIN_PARSER_VERSION),
        },
    )
    builder.Finish(metadata, IDENTIFIER)
    return bytes(builder.Output())


def _add_tensors(builder: flatbuffers.Builder, notes: Sequence[TensorNote]) -> int:
    """Adds a vector of TensorMetadata; returns its offset."""
    tensors = []
    for note in notes:
        fields = {
            0: builder.CreateString(note.name),
            1: builder.CreateString(note.description),
        }
        if note.labels_file:
            labels = _add_file(builder, note.labels_file, "A label on each line.", LABELS_TYPE)
            fields[6] = _add_vector(builder, [labels])
        tensors.append(_add_table(builder, fields))
    return _add_vector(builder, tensors)


def _add_file(builder: flatbuffers.Builder, name: str, description: str, file_type: int) -> int:
    """Adds an AssociatedFile; returns its offset."""
    fields = {0: builder.CreateString(name), 1: builder.CreateString(description)}
    return _add_table(builder, fields, {2: file_type})


def _add_table(
    builder: flatbuffers.Builder,
    offsets: Mapping[int, int],
    numbers: Mapping[int, int] | None = None,
) -> int:
    """Adds a table of offsets and of one-byte numbers, each by its slot; returns its offset."""
    numbers = numbers or {}
    builder.StartObject(max(*offsets, *numbers, 0) + 1)
    for slot, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    for slot, number in numbers.items():
        builder.PrependInt8Slot(slot, number, 0)
    return builder.EndObject()


def _add_vector(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    """Adds a vector of tables; returns its offset."""
    size = number_types.UOffsetTFlags.bytewidth
    builder.StartVector(size, len(offsets), size)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


# The flatbuffer of the model.


def _add_metadata(model: bytes, metadata: bytes) -> bytes:
    """Returns a model with a further buffer and its name.

    The result is a new root table in front of the bytes of the model. The root points to their
    tables, and to longer lists of buffers and of metadata. So the weights keep their alignment,
    and nothing of the model is written again.
    """
    builder = flatbuffers.Builder(len(model) + len(metadata) + 4096)
    builder.Prep(_ALIGNMENT, len(model))
    length_size = number_types.UOffsetTFlags.bytewidth
    start = builder.CreateByteVector(model) - length_size

    def locate(position: int) -> int:
        """Returns the offset of a position in the bytes of the model."""
        return start - position

    root = _read_root(model)
    positions = _read_positions(root)
    buffers = [locate(position) for position in _read_vector(root, _BUFFERS)]
    entries = [locate(position) for position in _read_vector(root, _METADATA)]

    number = len(buffers)
    data = builder.CreateByteVector(metadata)
    buffers.append(_add_table(builder, {0: data}))
    entries.append(_add_entry(builder, number))
    offsets = {slot: locate(position) for slot, position in positions.items()}
    offsets[_BUFFERS] = _add_vector(builder, buffers)
    offsets[_METADATA] = _add_vector(builder, entries)

    version_position = root.Pos + root.Offset(_find_entry(_VERSION))
    version = root.Get(number_types.Uint32Flags, version_position)
    builder.StartObject(max(offsets) + 1)
    builder.PrependUint32Slot(_VERSION, version, 0)
    for slot, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    builder.Finish(builder.EndObject(), MODEL_IDENTIFIER)
    return bytes(builder.Output())


def _add_entry(builder: flatbuffers.Builder, buffer_number: int) -> int:
    """Adds an entry of the model's metadata: a name and the number of a buffer."""
    name = builder.CreateString(NAME)
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependUint32Slot(1, buffer_number, 0)
    return builder.EndObject()


def read_input_names(model: bytes) -> list[str]:
    """Return the names of the inputs of a TFLite model, in its order.

    Args:
        model: the content of a TFLite file.
    """
    subgraph = Table(model, _read_vector(_read_root(model), _SUBGRAPHS)[0])
    tensors = _read_vector(subgraph, _TENSORS)
    offset = subgraph.Offset(_find_entry(_INPUTS))
    first = subgraph.Vector(offset)
    size = number_types.Int32Flags.bytewidth
    names = []
    for index in range(subgraph.VectorLen(offset)):
        number = subgraph.Get(number_types.Int32Flags, first + size * index)
        tensor = Table(model, tensors[number])
        name_position = tensor.Pos + tensor.Offset(_find_entry(_TENSOR_NAME))
        names.append(tensor.String(name_position).decode())
    return names


def _read_root(model: bytes) -> Table:
    """Returns the table Model."""
    return Table(model, encode.Get(packer.uoffset, model, 0))


def _read_positions(root: Table) -> dict[int, int]:
    """Returns the positions of what the root table points to, by slot; all but the version."""
    vtable = root.Pos - root.Get(number_types.SOffsetTFlags, root.Pos)
    vtable_size = root.Get(number_types.VOffsetTFlags, vtable)
    positions = {}
    slot = _VERSION + 1
    while _find_entry(slot) < vtable_size:
        if offset := root.Offset(_find_entry(slot)):
            positions[slot] = root.Indirect(root.Pos + offset)
        slot += 1
    return positions


def _read_vector(table: Table, slot: int) -> list[int]:
    """Returns the positions of the tables in a vector of a table."""
    offset = table.Offset(_find_entry(slot))
    if not offset:
        return []
    first = table.Vector(offset)
    size = number_types.UOffsetTFlags.bytewidth
    count = table.VectorLen(offset)
    return [table.Indirect(first + size * index) for index in range(count)]


def _find_entry(slot: int) -> int:
    """Returns the place of a slot in a vtable, which begins with two sizes of two bytes."""
    return 4 + 2 * slot
