#!/usr/bin/env python3
"""Compares the losses of fine-tuning, step by step, with Hugging Face's models and the original's
optimizer.

In: a folder of real data and a Hugging Face encoder. Out: the greatest difference of the losses for
    each kind of head.

Both sides start from the same weights, head included, and read the same batches; the dropout rate
is 0. This file has its own implementation of the original's optimizer and schedule, in PyTorch.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import finetuning_tasks as tasks
import numpy as np

HEADS = {
    "classification": "CoLA",
    "regression": "STS-B",
    "span": "SQuAD 1.1",
    "choice": "CODAH",
    "tags": "WNUT-17",
}
LEARNING_RATE, WEIGHT_DECAY, WARMUP_PROPORTION = 5e-5, 0.01, 0.1
TARGET = 1e-4


class OriginalAdam:
    """The original's optimizer: no bias correction, weight decay times the rate, epsilon outside
    the square root.
    """

    def __init__(
        self, named_parameters, num_steps: int, num_warmup_steps: int, learning_rate=LEARNING_RATE
    ):
        import torch

        self.named = [
            (name, parameter) for name, parameter in named_parameters if parameter.requires_grad
        ]
        self.slots = {
            name: (torch.zeros_like(parameter), torch.zeros_like(parameter))
            for name, parameter in self.named
        }
        self.num_steps, self.num_warmup_steps, self.learning_rate = (
            num_steps,
            num_warmup_steps,
            learning_rate,
        )
        self.step_number = 0

    def rate(self) -> float:
        """Returns the learning rate; its decay to zero begins at step 0, so it drops at the end
        of the warm-up.
        """
        step = self.step_number
        if step < self.num_warmup_steps:
            return self.learning_rate * step / self.num_warmup_steps
        return self.learning_rate * (1.0 - min(step, self.num_steps) / self.num_steps)

    def step(self):
        """Clips the gradients at a global norm of 1, updates the parameters and resets the
        gradients.
        """
        import torch

        torch.nn.utils.clip_grad_norm_([parameter for _, parameter in self.named], 1.0)
        rate = self.rate()
        with torch.no_grad():
            for name, parameter in self.named:
                if parameter.grad is None:
                    continue
                m, v = self.slots[name]
                m.mul_(0.9).add_(parameter.grad, alpha=0.1)
                v.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                change = m / (v.sqrt() + 1e-6)
                if "LayerNorm" not in name and "bias" not in name:
                    change += WEIGHT_DECAY * parameter
                parameter.sub_(rate * change)
                parameter.grad = None
        self.step_number += 1


def make_batches(sets: tasks.Sets, batch_size: int, num_steps: int) -> list[dict]:
    """Returns batches of randomly drawn examples, padded to the longest one, or for spans to the
    maximum length.
    """
    from official_bert.training.batches import padded_length

    draws = np.random.default_rng(0)
    batches = []
    for _ in range(num_steps):
        rows = draws.choice(len(sets.train.lengths), batch_size, replace=False)
        longest = padded_length(int(sets.train.lengths[rows].max()), sets.max_length)
        length = sets.max_length if sets.task.objective(None).reads_padding else longest
        batches.append(sets.train.features(rows, length))
    return batches


def our_losses(sets: tasks.Sets, batches: list[dict], model_folder: pathlib.Path):
    """Returns the loss before each update, and the initial weights by TF1 name."""
    import tensorflow as tf

    from official_bert.checkpoints import load_checkpoint, named_variables
    from official_bert.config import BertConfig, read_config
    from official_bert.optimization import (
        EXCLUDED_FROM_DECAY,
        AdamWeightDecayOptimizer,
        WarmupLinearDecay,
    )
    from official_bert.tasks.base import TaskObjective
    from official_bert.training.loop import compiled_steps
    from official_bert.training.step import TrainingStep

    class WithoutDropout(TaskObjective):
        def loss(self, features, totals, dropout_seed):
            return super().loss(features, totals, None)

    config = BertConfig.from_dict(
        read_config(str(model_folder / "config.json"), 512).to_dict() | NO_DROPOUT
    )
    tf.keras.utils.set_random_seed(0)
    model = sets.task.build_model(config, use_one_hot_embeddings=False)
    load_checkpoint(model, str(model_folder))
    weights = {name: variable.value for name, variable in named_variables(model).items()}
    trained = {
        name: value
        for name, value in weights.items()
        if not name.startswith(getattr(model, "unused_weights", ()))
    }
    initial = {name: value.numpy() for name, value in weights.items()}
    optimizer = AdamWeightDecayOptimizer(
        WarmupLinearDecay(LEARNING_RATE, len(batches), int(len(batches) * WARMUP_PROPORTION)),
        weight_decay_rate=WEIGHT_DECAY,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
    )
    optimizer.build(trained.items())
    step = TrainingStep(
        WithoutDropout(model, sets.task.losses, sets.task.weights),
        list(trained.values()),
        optimizer,
        run_seed=1,
    )
    run = compiled_steps(tf.distribute.get_strategy(), step)
    stacked = (
        {name: tf.constant(values[None]) for name, values in batch.items()} for batch in batches
    )
    return [run(batch, 1)["loss"] for batch in stacked], initial


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def peer_losses(model, batches: list[dict], initial: dict[str, np.ndarray]) -> list[float]:
    """Returns the losses of Hugging Face's model, whose head gets the weights of ours."""
    import torch

    head = model.qa_outputs if hasattr(model, "qa_outputs") else model.classifier
    prefix = "cls/squad/" if hasattr(model, "qa_outputs") else ""
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(initial[f"{prefix}output_weights"]))
        head.bias.copy_(torch.from_numpy(initial[f"{prefix}output_bias"]))
    # Hugging Face does not train the embedding of [PAD], the original does. It matters for spans,
    # whose logits include padding.
    model.bert.embeddings.word_embeddings.padding_idx = None
    model.train()
    optimizer = OriginalAdam(
        model.named_parameters(), len(batches), int(len(batches) * WARMUP_PROPORTION)
    )
    losses = []
    for batch in batches:
        loss = model(**tasks.peer_inputs(batch)).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="folder with glue, squad and so on"
    )
    parser.add_argument(
        "--model", type=pathlib.Path, required=True, help="Hugging Face folder of an encoder"
    )
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--num_steps", type=int, default=30)
    parser.add_argument(
        "--output", type=pathlib.Path, help="JSON lines file to append the losses to"
    )
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    print(
        "| head | data | first loss | last loss | greatest difference | within 1e-4 "
        "|\n|---|---|--:|--:|--:|---|"
    )
    for head in flags.heads:
        benchmark = tasks.BENCHMARKS[HEADS[head]]
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder) / "data"
            tasks.prepare_data(flags.data, data)
            options = tasks.make_options(
                benchmark, data, flags.model, pathlib.Path(folder) / "output"
            )
            sets = tasks.read_sets(options)
        batches = make_batches(sets, options.train_batch_size, flags.num_steps)
        ours, initial = our_losses(sets, batches, flags.model)
        model = tasks.peer_model(benchmark, sets, flags.model, **NO_DROPOUT)
        theirs = peer_losses(model, batches, initial)
        difference = np.abs(np.subtract(ours, theirs)).max()
        print(
            f"| {head} | {HEADS[head]} | {ours[0]:.4f} | {ours[-1]:.4f} | {difference:.1e} | "
            f"{difference <= TARGET} |",
            flush=True,
        )
        if flags.output:
            with flags.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"head": head, "ours": ours, "theirs": theirs}) + "\n")


if __name__ == "__main__":
    main()
