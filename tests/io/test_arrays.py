"""Damaged .npy, .npz and .zip files end in one sentence, and no header makes a reader reserve
memory.
"""

import io
import zipfile

import numpy as np
import pytest

from official_bert.io import archives, arrays
from official_bert.io.errors import InputError

REMEDY = "make it anew"
VALUES = np.arange(600, dtype=np.float32).reshape(200, 3)


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """The bytes of a .npy file with a header of any text."""
    text = header.encode("latin-1") + b"\n"
    length_size = 2 if version[0] == 1 else 4
    length = len(text).to_bytes(length_size, "little")
    return b"\x93NUMPY" + version + length + text + data


def described(descr: str = "'<f4'", shape: str = "(3,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(VALUES, id="C order"),
        pytest.param(np.asfortranarray(VALUES), id="Fortran order"),
        pytest.param(np.empty((0, 3)), id="empty"),
        pytest.param(np.float64(7), id="scalar"),
        pytest.param(np.array(["é"]), id="text"),
    ],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_arrays_are_read_as_by_numpy(tmp_path, array, version):
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.asanyarray(array), version)
    array = arrays.read_npy(str(path))
    expected = np.load(path)
    np.testing.assert_array_equal(array, expected)
    assert array.dtype == expected.dtype
    assert array.shape == expected.shape


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param(b"", "does not begin as an array", id="empty"),
        pytest.param(b"\x93NUMPY", "header is damaged", id="no header"),
        pytest.param(
            npy(described(), b"\0" * 12, version=b"\x09\x00"),
            "header is damaged",
            id="unknown version",
        ),
        pytest.param(
            npy("[" * 4000),
            "header is damaged",
            id="4000 brackets",
        ),
        pytest.param(
            npy("(" * 60),
            "header is damaged",
            id="60 parentheses",
        ),
        pytest.param(
            npy("'''"),
            "header is damaged",
            id="open quotes",
        ),
        pytest.param(
            npy("{'descr': 'x"),
            "header is damaged",
            id="half a header",
        ),
        pytest.param(
            npy(described(shape="(" + "9" * 5000 + ",)")),
            "header is damaged",
            id="a size of 5000 digits",
        ),
        pytest.param(
            npy(described(descr="'|O'"), b"\0" * 24),
            "Python objects",
            id="Python objects",
        ),
        pytest.param(
            npy(described(shape="(1 << 50,)")),
            "header is damaged",
            id="an expression as size",
        ),
        pytest.param(
            npy(described(shape="(1125899906842624,)"), b"\0" * 12),
            "behind it are 12 bytes",
            id="a size of 2^50",
        ),
        pytest.param(
            npy(described(descr="'<U1000000000'"), b"\0" * 12),
            "header is damaged",
            id="texts of 10^9 characters",
        ),
        pytest.param(
            npy(described(), b"\0" * 11),
            "behind it are 11 bytes",
            id="a byte less",
        ),
        pytest.param(
            npy(described(), b"\0" * 13),
            "behind it are 13 bytes",
            id="a byte more",
        ),
        pytest.param(
            npy(described(shape="(-3,)"), b"\0" * 12),
            "",
            id="a negative size",
        ),
    ],
)
def test_a_damaged_array_is_named(tmp_path, content, fault):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    message = rf"a\.npy: cannot be read as \.npy \(.*{fault}.*\); write it again"
    with pytest.raises(InputError, match=message):
        arrays.read_npy(str(path))


def test_a_device_without_end_is_no_array():
    with pytest.raises(InputError, match=r"/dev/zero: cannot be read as \.npy"):
        arrays.read_npy("/dev/zero")


def write_zip(path, compression=zipfile.ZIP_DEFLATED, names=("values",)):
    buffer = io.BytesIO()
    np.save(buffer, VALUES)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name in names:
            archive.writestr(f"{name}.npy", buffer.getvalue())


def changed(path, change):
    content = bytearray(path.read_bytes())
    result = change(content)
    path.write_bytes(content if result is None else result)


def set_in_headers(local: int, central: int, value: bytes):
    """A change of a field of the header of the first entry, and of its copy in the directory at
    the end.
    """

    def change(content):
        directory = content.index(b"PK\x01\x02")
        for start in (local, directory + central):
            content[start : start + len(value)] = value

    return change


def flip(place: int):
    def change(content):
        content[place] ^= 0xFF

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        pytest.param(set_in_headers(6, 8, b"\x01\x00"), "is encrypted", id="encrypted"),
        pytest.param(
            set_in_headers(8, 10, (99).to_bytes(2, "little")),
            "compression method",
            id="unknown compression",
        ),
        pytest.param(flip(100), "", id="byte 100 flipped"),
        pytest.param(flip(60), "", id="byte 60 flipped"),
        pytest.param(lambda content: content[:60] + content[90:], "", id="30 bytes missing"),
        pytest.param(lambda content: content[:-30], "not a zip file", id="end missing"),
        pytest.param(
            set_in_headers(18, 20, b"\xff\xff\xff\x7f"),
            "claims more bytes than the file has",
            id="too large an entry",
        ),
        pytest.param(set_in_headers(0, 42, b"\xff\xff\xff\x7f"), "", id="offset outside"),
        pytest.param(lambda content: b"", "not a zip file", id="empty"),
    ],
)
def test_a_damaged_archive_is_named(tmp_path, change, fault):
    path = tmp_path / "a.npz"
    write_zip(path)
    changed(path, change)
    message = rf"a\.npz: cannot be read as a \.zip file \(.*{fault}.*\); make it anew$"
    with pytest.raises(InputError, match=message):
        arrays.read_npz(str(path), ["values"], REMEDY)


def test_every_flipped_byte_gives_the_array_or_the_sentence(tmp_path):
    """Of the first bytes and of the directory; where a flip changes nothing that is read, the
    array is the same.
    """
    path = tmp_path / "a.npz"
    write_zip(path)
    content = path.read_bytes()
    sentences = []
    size = len(content)
    for place in (*range(80), *range(size - 80, size)):
        path.write_bytes(content)
        changed(path, flip(place))
        try:
            loaded = arrays.read_npz(str(path), ["values"], REMEDY)
            np.testing.assert_array_equal(loaded["values"], VALUES)
        except InputError as error:
            sentences.append(str(error))
    assert len(sentences) > 100
    for sentence in sentences:
        assert sentence.startswith(f"{path}: ")
        assert sentence.endswith(REMEDY)


def test_an_archive_of_other_entries_is_named(tmp_path):
    path = str(tmp_path / "a.npz")
    write_zip(path, zipfile.ZIP_STORED, ("other",))
    with pytest.raises(InputError, match="lacks the array values; make it anew"):
        arrays.read_npz(path, ["values"], REMEDY)
    with pytest.warns(UserWarning, match="Duplicate name"):
        write_zip(path, names=("values", "values"))
    with pytest.raises(InputError, match=r"two entries 'values\.npy'"):
        arrays.read_npz(path, ["values"], REMEDY)
    too_large = npy(described(shape="(1125899906842624,)"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("values.npy", too_large)
    with pytest.raises(InputError, match="its array values cannot be read"):
        arrays.read_npz(path, ["values"], REMEDY)


def test_entries_are_sorted_and_chosen(tmp_path):
    path = str(tmp_path / "a.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        for name in ("b", "c", "a"):
            archive.writestr(name, name * 3)
    entries = archives.read_entries(path, lambda name: name != "c", REMEDY)
    assert list(entries) == [
        ("a", b"aaa"),
        ("b", b"bbb"),
    ]


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_a_device_is_no_archive(path):
    with pytest.raises(InputError, match="is a device or a pipe"):
        list(archives.read_entries(path, lambda _: True, REMEDY))
