"""What a user of a training's checkpoint reads: averages, and kernels with LoRA's products, by
numpy.
"""

import types

import numpy as np
import pytest

from official_bert.checkpoints import open_checkpoint, tf1
from official_bert.checkpoints.weights_in_use import check_can_resume
from official_bert.io.errors import InputError

DENSE = "bert/encoder/layer_0/intermediate/dense"
A, B = f"{DENSE}/lora_kernel_a", f"{DENSE}/lora_kernel_b"


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
    ("ours", "theirs", "sentence"),
    [
        (
            {A: (4, 2)},
            {A: (4, 3)},
            "was trained with --lora_rank=3, and cannot go on with --lora_rank=2; keep to",
        ),
        ({A: (4, 2)}, {}, "was trained without --lora_rank, and cannot go on with --lora_rank=2"),
        ({}, {A: (4, 3)}, "was trained with --lora_rank=3, and cannot go on without --lora_rank"),
        (
            {"x/ema": ()},
            {"x": ()},
            "has no averages of its weights, since it was trained without --ema_decay",
        ),
        (
            {"x": ()},
            {"x": (), "x/ema": ()},
            "has averages of its weights, which would be lost, .* with --ema_decay; give",
        ),
    ],
)
def test_a_training_goes_on_with_what_it_began_with(ours, theirs, sentence):
    checkpoint = types.SimpleNamespace(path="out/model.ckpt-3", shapes=theirs)
    variables = {name: np.zeros(shape) for name, shape in ours.items()}
    with pytest.raises(InputError, match=f"out/model.ckpt-3: {sentence}"):
        check_can_resume(checkpoint, variables)
