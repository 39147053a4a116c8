"""The type that a model computes in: what the devices are made for, and the warning of another one."""

import logging

import pytest
import tensorflow as tf

from official_bert.training import precision
from official_bert.training.precision import choose

ONE = tf.distribute.get_strategy()


@pytest.fixture
def device(monkeypatch):
    """Sets the kind of device, the flags of its processor, and the GPUs' compute capabilities."""

    def pretend(kind="CPU", flags=None, capabilities=(), folder=None):
        monkeypatch.setattr(precision, "kind_of_device", lambda strategy: kind)
        if folder:
            info = folder / "cpuinfo"
            monkeypatch.setattr(precision, "_CPU_INFO", info)
            if flags is not None:
                info.write_text(
                    f"processor\t: 0\nmodel name\t: amx_bf16 inside\nflags\t\t: {flags}\n\nprocessor\t: 1\n"
                )
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list(range(len(capabilities))))
        details = [{} if one is None else {"compute_capability": one} for one in capabilities]
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda number: details[number])

    return pretend


@pytest.mark.parametrize(
    ("flags", "expected", "reason"),
    [
        ("fpu avx512_bf16 amx_bf16 amx_tile", "bfloat16", "the processor has AMX"),
        ("fpu avx512_bf16", "bfloat16", "the processor has AVX512_BF16"),
        ("fpu avx2 avx512f", "float32", "the devices do not multiply bfloat16"),
        (None, "float32", "the devices do not multiply bfloat16"),  # no Linux
    ],
)
def test_auto_follows_the_processor(device, tmp_path, caplog, flags, expected, reason):
    device(flags=flags, folder=tmp_path)
    with caplog.at_level(logging.INFO, logger="absl"):
        assert choose("auto", ONE) == (expected, {"dtype": expected})
    assert f"--dtype=auto: {expected}, since {reason}" in caplog.text


@pytest.mark.parametrize(
    ("kind", "capabilities", "expected"),
    [
        ("TPU", [], "bfloat16"),
        ("GPU", [(9, 0), (8, 0)], "bfloat16"),
        ("GPU", [(9, 0), (7, 5)], "float32"),
        ("GPU", [None], "float32"),
    ],
)
def test_auto_follows_the_accelerator(device, kind, capabilities, expected):
    device(kind=kind, capabilities=capabilities)
    assert choose("auto", ONE)[0] == expected


def test_only_bfloat16_is_warned_of_where_auto_would_not_take_it(device, tmp_path, caplog):
    device(flags="fpu avx2", folder=tmp_path)
    assert choose("float32", ONE) == ("float32", {})
    assert choose("float16", ONE) == ("float16", {})
    device(kind="TPU")
    assert choose("bfloat16", ONE) == ("bfloat16", {})
    assert not caplog.records
    device(flags="fpu avx2", folder=tmp_path)
    assert choose("bfloat16", ONE) == ("bfloat16", {})
    assert "--dtype=bfloat16: the devices are not known to multiply it" in caplog.text
