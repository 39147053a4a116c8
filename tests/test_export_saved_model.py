"""export_saved_model.py as a process, and its export in the hands of TensorFlow's own command-line tool."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from official_bert.io.errors import InputError
from tests.scripts import flag_list, run_here, run_script
from tests.serving.exported import batch, make_checkpoint, make_task

TOOL = "tensorflow.python.tools.saved_model_cli"


def output_of_tool(folder, *commands: list) -> str:
    """What saved_model_cli prints, as its console script runs it, in another folder than ours.

    One process runs all commands, because each would take the 5 s of loading TensorFlow.
    """
    assert find_spec(TOOL)
    code = f"""
import json, sys
from {TOOL} import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""
    arguments = json.dumps([[str(argument) for argument in command] for command in commands])
    finished = subprocess.run(
        [sys.executable, "-c", code, arguments],
        cwd=folder, timeout=240, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def model_flags(folder, task_name):
    return flag_list(
        task_name=task_name, export_dir=folder / "exports", init_checkpoint=folder / "model.ckpt",
        bert_config_file=folder / "bert_config.json", vocab_file=folder / "vocab.txt", max_seq_length=32,
    )  # fmt: skip


def test_saved_model_cli_shows_and_runs_an_export(tmp_path):
    _, model = make_checkpoint(tmp_path, "mrpc")
    stderr = run_script("export_saved_model.py", *model_flags(tmp_path, "mrpc")).stderr
    assert "Exported " in stderr
    assert "with the signatures serving_default, serving_ids, serving_examples" in stderr

    version, features = tmp_path / "exports" / "1", batch("mrpc", 2, 9)
    inputs = []
    for name, values in features.items():
        np.save(tmp_path / f"{name}.npy", values)
        inputs.append(f"{name}={tmp_path / name}.npy")
    show = ["show", "--dir", version, "--all"]
    run = [
        "run", "--dir", version, "--tag_set", "serve", "--signature_def", "serving_default",
        "--inputs", ";".join(inputs), "--outdir", tmp_path, "--overwrite",
    ]  # fmt: skip
    shown = output_of_tool(tmp_path, show, run)
    signatures = dict(re.findall(r"signature_def\['(\w+)'\]:(.*?)Method name is", shown, re.DOTALL))
    assert {"serving_default", "serving_ids", "serving_examples"} <= set(signatures)
    default = signatures["serving_default"]
    assert re.findall(r"inputs\['(\w+)'\].*?dtype: (\w+)\s+shape: (.*?)\s*name", default, re.DOTALL) == [
        ("input_ids", "DT_INT32", "(-1, -1)"),
        ("input_mask", "DT_INT32", "(-1, -1)"),
        ("segment_ids", "DT_INT32", "(-1, -1)"),
    ]
    assert re.findall(r"outputs\['(\w+)'\].*?dtype: (\w+)", default, re.DOTALL) == [
        ("label", "DT_STRING"),
        ("logits", "DT_FLOAT"),
        ("probabilities", "DT_FLOAT"),
    ]
    wanted = make_task("mrpc").serving_outputs(model, features)
    np.testing.assert_allclose(np.load(tmp_path / "probabilities.npy"), wanted["probabilities"], atol=1e-5)
    np.testing.assert_array_equal(np.load(tmp_path / "label.npy", allow_pickle=True), wanted["label"])


def test_a_checkpoint_of_another_task_ends_in_one_sentence(tmp_path):
    make_checkpoint(tmp_path, "ner")
    sentence = "lacks cls/squad/output_weights, cls/squad/output_bias, which --task_name=squad needs"
    with pytest.raises(InputError, match=sentence):
        run_here("export_saved_model.py", *model_flags(tmp_path, "squad"))
    assert not (tmp_path / "exports").exists()
