"""The type that a model computes in: what the devices are made for, and the warning of a slow one."""

import json
import logging

import pytest
import tensorflow as tf

from official_bert.training import compute_dtype, throughput
from official_bert.training.compute_dtype import SPEEDUP_KEY, choose

ONE = tf.distribute.get_strategy()


@pytest.fixture
def device(monkeypatch):
    """Sets the kind of device, the flags of its processor, and the GPUs' compute capabilities."""

    def pretend(kind="CPU", flags=None, capabilities=(), folder=None):
        monkeypatch.setattr(compute_dtype, "kind_of_device", lambda strategy: kind)
        if folder:
            info = folder / "cpuinfo"
            monkeypatch.setattr(compute_dtype, "_CPU_INFO", info)
            if flags is not None:
                info.write_text(
                    f"processor\t: 0\nmodel name\t: amx_bf16 inside\nflags\t\t: {flags}\n\nprocessor\t: 1\n"
                )
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list(range(len(capabilities))))
        details = [{} if one is None else {"compute_capability": one} for one in capabilities]
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda number: details[number])

    return pretend


@pytest.fixture
def rates(monkeypatch):
    """Sets the rates of products; the list that it returns names the types that are measured."""

    def pretend(**rate_of):
        measured = []
        monkeypatch.setattr(
            throughput,
            "measured_peak_flops",
            lambda strategy, dtype, secs: measured.append(dtype) or rate_of[dtype],
        )
        return measured

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
def test_auto_follows_the_processor(device, rates, tmp_path, caplog, flags, expected, reason):
    device(flags=flags, folder=tmp_path)
    measured = rates()
    with caplog.at_level(logging.INFO, logger="absl"):
        assert choose("auto", ONE, str(tmp_path)) == (expected, {"dtype": expected})
    assert f"--dtype=auto: {expected}, since {reason}" in caplog.text
    assert measured == []


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


def test_a_slow_bfloat16_is_warned_of_with_the_measured_ratio(device, rates, caplog):
    device()
    measured = rates(float32=4.6e10, bfloat16=2e10)
    assert choose("bfloat16", ONE) == ("bfloat16", {SPEEDUP_KEY: 0.435})
    assert "--dtype=bfloat16: this machine multiplies matrices 2.3 times as fast in float32" in caplog.text
    assert measured == ["bfloat16", "float32"]


def test_a_fast_bfloat16_other_types_and_a_tpu_get_no_warning(device, rates, caplog):
    device()
    measured = rates(float32=2e11, bfloat16=8e11)
    assert choose("bfloat16", ONE) == ("bfloat16", {SPEEDUP_KEY: 4.0})
    del measured[:]
    assert choose("float32", ONE) == ("float32", {})
    assert choose("float16", ONE) == ("float16", {})
    device(kind="TPU")
    assert choose("bfloat16", ONE) == ("bfloat16", {})
    assert measured == []
    assert not caplog.records


@pytest.mark.parametrize("flag", ["bfloat16", "auto"])
def test_the_measurement_of_an_earlier_run_is_used_again(device, rates, tmp_path, caplog, flag):
    """The earlier run computed in bfloat16, by either flag; one in float32 has measured nothing."""
    device()
    measured = rates()
    record = {"devices": [one.name for one in tf.config.list_logical_devices()], "num_replicas": 1}
    earlier = record | {"flags": {"dtype": flag}, "dtype": "bfloat16", SPEEDUP_KEY: 0.5}
    lines = [json.dumps(earlier), json.dumps(record | {"flags": {"dtype": "float32"}})]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n")
    assert choose("bfloat16", ONE, str(tmp_path)) == ("bfloat16", {SPEEDUP_KEY: 0.5})
    assert "2.0 times as fast in float32" in caplog.text
    assert measured == []


def test_the_products_of_both_types_are_really_measured(device, monkeypatch):
    device()
    monkeypatch.setattr(compute_dtype, "_MEASURING_SECS", 0.1)
    _, facts = choose("bfloat16", ONE)
    print(facts)
    assert 0.01 < facts[SPEEDUP_KEY] < 100
