"""The trace of some updates, and the share of the peak that a training uses."""

import pathlib

import pytest

from official_bert import InputError
from official_bert.config import BertConfig
from official_bert.options.fields import find_fault
from official_bert.options.training import TrainingOptions
from official_bert.training import profiling, run_log
from official_bert.training.flops import peak_by_name, training_flops
from tests import toy
from tests.commands.pretraining_run import PREDICTIONS, SCRIPT, SEQ, write_records
from tests.scripts import flag_list, run_here

PEAK = 2e9


class Calls:
    """Notes the calls of TensorFlow's profiler, with the step at that time."""

    def __init__(self, monkeypatch):
        self.step = 0
        self.notes = []
        profiler = profiling.tf.profiler.experimental
        monkeypatch.setattr(profiler, "start", lambda folder: self.notes.append(self.step))
        monkeypatch.setattr(profiler, "stop", lambda: self.notes.append(self.step))

    def run(self, profile: profiling.Profile, *steps: int) -> list[int]:
        for self.step in steps:
            profile.update(self.step)
        return self.notes


def test_the_trace_has_the_updates_from_the_first_to_the_last(monkeypatch, tmp_path):
    calls = Calls(monkeypatch)
    profile = profiling.Profile("10:15", str(tmp_path))
    # Calls into TensorFlow end before update 10 and after update 15.
    assert profile.stops == (9, 15)
    assert calls.run(profile, 0, 5, 9) == [9]
    assert calls.run(profile, 12, 15) == [9, 15]
    assert calls.run(profile, 20, 9) == [9, 15], "there is one trace"


def test_a_run_that_resumes_later_traces_what_is_left(monkeypatch, tmp_path):
    calls = Calls(monkeypatch)
    with profiling.Profile("10:15", str(tmp_path)) as profile:
        calls.run(profile, 12)
    assert calls.notes == [12, 12], "the end of the block ends the trace"
    assert calls.run(profiling.Profile("10:15", str(tmp_path)), 15, 16) == [12, 12]
    assert profiling.Profile(None, str(tmp_path)).stops == ()


def test_a_run_without_these_updates_says_that_there_is_no_trace(monkeypatch, tmp_path, caplog):
    calls = Calls(monkeypatch)
    with profiling.Profile(None, str(tmp_path)) as no_profile:
        calls.run(no_profile, 0, 6)
    with profiling.Profile("1:2", str(tmp_path)) as traced:
        calls.run(traced, 0, 6)
    assert "no trace" not in caplog.text
    with profiling.Profile("10:15", str(tmp_path)) as profile:
        calls.run(profile, 0, 6)
    assert calls.notes == [0, 6]
    assert (
        "--profile_steps=10:15: this run made none of these updates, so there is no trace"
        in caplog.text
    )


@pytest.mark.parametrize("text", ["10", "10:", ":5", "0:5", "15:10", "-1:5", "a:b", "1:2:3"])
def test_other_values_are_refused(text):
    field = TrainingOptions.__dataclass_fields__["profile_steps"]
    assert find_fault(field, text) == "must be two numbers of updates, such as 10:15"
    assert find_fault(field, "3:3") is None


def test_a_pretraining_writes_its_trace_and_its_share_of_the_peak(tmp_path):
    base = toy.make_bert_base_dir(tmp_path / "base")
    flags = flag_list(
        input_file=write_records(tmp_path / "records.tfrecord"),
        output_dir=tmp_path / "out",
        bert_config_file=base / "bert_config.json",
        vocab_file=base / "vocab.txt",
        do_train=True,
        max_seq_length=SEQ,
        max_predictions_per_seq=PREDICTIONS,
        train_batch_size=4,
        num_train_steps=8,
        num_warmup_steps=2,
        log_every_steps=4,
        profile_steps="3:5",
        peak_flops=PEAK,
    )
    finished = run_here(SCRIPT, *flags)
    assert list(pathlib.Path(tmp_path / "out" / "profile").rglob("*.xplane.pb"))
    assert "Wrote the trace of --profile_steps" in finished.stderr

    config = BertConfig.from_json_file(str(base / "bert_config.json"))
    flops = training_flops(config, 1, SEQ, PREDICTIONS)
    line = run_log.read(str(tmp_path / "out"), run_log.TRAIN)[-1]
    assert line["mfu"] == pytest.approx(line["examples_per_second"] * flops / PEAK)
    (summary,) = run_log.read(str(tmp_path / "out"), run_log.END)
    assert summary["mfu"] == pytest.approx(summary["examples_per_second"] * flops / PEAK)
    assert f"mfu {line['mfu']:.3g}" in finished.stderr


def test_without_a_known_peak_there_is_no_share():
    assert peak_by_name("NVIDIA H100 80GB HBM3", "bfloat16") == 989.4e12
    assert peak_by_name("NVIDIA H100 PCIe", "float32") == 378e12
    assert peak_by_name("NVIDIA H100 NVL", "bfloat16") == 835.5e12
    assert peak_by_name("NVIDIA GH200 480GB", "bfloat16") == 989.4e12
    assert peak_by_name("Tesla V100-SXM2-16GB", "float16") == 125e12
    assert peak_by_name("Tesla V100-PCIE-32GB", "float16") == 112e12
    assert peak_by_name("NVIDIA A100-SXM4-40GB", "float16") == 312e12
    assert peak_by_name("Tesla T4", "bfloat16") is None
    assert peak_by_name("NVIDIA L4", "bfloat16") == 121e12
    assert peak_by_name("NVIDIA L40", "bfloat16") is None, "it is another GPU than the L4"
    assert peak_by_name("Some GPU", "float32") is None


def test_a_stop_after_the_end_is_refused(tmp_path):
    base = toy.make_bert_base_dir(tmp_path / "base")
    flags = flag_list(
        input_file=tmp_path / "records.tfrecord",
        output_dir=tmp_path / "out",
        bert_config_file=base / "bert_config.json",
        do_train=True,
        num_train_steps=8,
        stop_at_step=9,
    )
    with pytest.raises(InputError, match="--stop_at_step=9: the training ends earlier, after"):
        run_here(SCRIPT, *flags)
