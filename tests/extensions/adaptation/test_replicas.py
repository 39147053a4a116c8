"""Fine-tuning a part of a model on several replicas has the numbers of one device."""

import pytest

from tests.test_replicas import assert_replicas_equal_it, run_of_family


@pytest.mark.long
def test_replicas_train_adapters_as_one_device(tmp_path):
    flags = {"lora_rank": 2, "ema_decay": 0.9, "layer_wise_lr_decay": 0.9}
    options = run_of_family(tmp_path, "classification", **flags)
    assert_replicas_equal_it(tmp_path, "classification", options, 2)
