"""The weights of a training's checkpoint as they are used equal those that NumPy computes."""

import types

import numpy as np
import pytest

from official_bert.checkpoints import open_checkpoint, tf1
from official_bert.checkpoints.weights_in_use import check_can_resume
from official_bert.io.errors import InputError

DENSE = "bert/encoder/layer_0/intermediate/dense"
A = f"{DENSE}/lora_kernel_a"
B = f"{DENSE}/lora_kernel_b"


def test_kernels_have_their_products_and_weights_their_averages(tmp_path):
    draws = np.random.default_rng(1)
    shapes = {
        f"{DENSE}/kernel": (4, 5),
        A: (4, 2),
        B: (2, 5),
        f"{A}/ema": (4, 2),
        f"{B}/ema": (2, 5),
    }
    shapes |= {
        f"{DENSE}/bias": (5,),
        "output_bias": (3,),
        "output_bias/ema": (3,),
        "output_bias/adam_m": (3,),
        f"{A}/adam_m": (4, 2),
    }
    stored = {name: draws.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    tf1.write(str(tmp_path / "model.ckpt-3"), stored | {"global_step": np.int64(3)})
    checkpoint = open_checkpoint(str(tmp_path / "model.ckpt-3"))
    assert checkpoint.shapes.keys() == {
        f"{DENSE}/kernel",
        f"{DENSE}/bias",
        "output_bias",
        "output_bias/adam_m",
        "global_step",
    }
    expected = {
        f"{DENSE}/kernel": stored[f"{DENSE}/kernel"] + stored[f"{A}/ema"] @ stored[f"{B}/ema"],
        f"{DENSE}/bias": stored[f"{DENSE}/bias"],
        "output_bias": stored["output_bias/ema"],
        "global_step": 3,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(checkpoint.read(name), value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("run_shapes", "checkpoint_shapes", "sentence"),
    [
        pytest.param(
            {A: (4, 2)},
            {A: (4, 3)},
            "was trained with --lora_rank=3, and cannot resume with --lora_rank=2; pass the same",
            id="other rank",
        ),
        pytest.param(
            {A: (4, 2)},
            {},
            "was trained without --lora_rank, and cannot resume with --lora_rank=2",
            id="adapters in the run only",
        ),
        pytest.param(
            {},
            {A: (4, 3)},
            "was trained with --lora_rank=3, and cannot resume without --lora_rank",
            id="adapters in the checkpoint only",
        ),
        pytest.param(
            {"x/ema": ()},
            {"x": ()},
            "has no averages of its weights, since it was trained without --ema_decay",
            id="averages in the run only",
        ),
        pytest.param(
            {"x": ()},
            {"x": (), "x/ema": ()},
            "has averages of its weights, which would be lost, .* with --ema_decay; give",
            id="averages in the checkpoint only",
        ),
    ],
)
def test_a_run_resumes_only_with_the_parts_of_its_checkpoint(
    run_shapes, checkpoint_shapes, sentence
):
    checkpoint = types.SimpleNamespace(path="out/model.ckpt-3", shapes=checkpoint_shapes)
    variables = {name: np.zeros(shape) for name, shape in run_shapes.items()}
    with pytest.raises(InputError, match=f"out/model.ckpt-3: {sentence}"):
        check_can_resume(checkpoint, variables)
