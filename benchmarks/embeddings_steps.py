"""The steps of embeddings.py: updates of both sides on the same batches, losses and seconds."""

import os
import pathlib
import tempfile
import time

import numpy as np
from embeddings_data import write_lines

LEARNING_RATE, WARMUP_PROPORTION, BATCH_SIZE, MAX_LENGTH = 2e-5, 0.1, 32, 128
# The flags of our trainings for the optimizer of `adamw`.
THEIR_OPTIMIZER = {
    "optimizer_type": "adamw_bias_correction",
    "adam_epsilon": 1e-8,
    "weight_decay_rate": 0.0,
}
LOSSES = {  # by name: the flags of ours, and the class of theirs
    "multiple_negatives_ranking": ({}, "MultipleNegativesRankingLoss"),
    "multiple_negatives_ranking, symmetric": (
        {"symmetric": True},
        "MultipleNegativesSymmetricRankingLoss",
    ),
    "multiple_negatives_ranking, matryoshka": (
        {"matryoshka": ["384", "192", "96"]},
        "MultipleNegativesRankingLoss",
    ),
    "multiple_negatives_ranking, hard negatives": ({}, "MultipleNegativesRankingLoss"),
    "cosent": ({}, "CoSENTLoss"),
    "cosine_similarity": ({}, "CosineSimilarityLoss"),
    "triplet": ({}, "TripletLoss"),
    "mse": ({}, "MSELoss"),
    "simcse": ({}, "MultipleNegativesRankingLoss"),
    "gist": ({}, "GISTEmbedLoss"),
    "angle": ({}, "AnglELoss"),
    "contrastive": ({}, "ContrastiveLoss"),
    "online_contrastive": ({}, "OnlineContrastiveLoss"),
}


def encoded_batches(
    flags, name: str, examples: list[dict], num_steps: int, batch_size: int
) -> tuple:
    """Returns our task for a loss, and batches of randomly drawn examples, padded to their
    longest text.
    """
    from official_bert.data.text_tables import read_examples
    from official_bert.extensions.embeddings.settings import EmbeddingSettings
    from official_bert.extensions.embeddings.task import EmbeddingTask
    from official_bert.tokenization import FullTokenizer

    draws = np.random.default_rng(0)
    teacher = str(flags.model) if name == "gist" else None
    settings = EmbeddingSettings(loss=name.partition(",")[0], teacher=teacher, **LOSSES[name][0])
    task = EmbeddingTask(settings=settings)
    if name == "mse":
        task._compute_targets = lambda texts: draws.normal(size=(len(texts), 384)).astype(
            np.float32
        )
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as folder:
        path = write_lines(pathlib.Path(folder) / "train.jsonl", examples)
        read = read_examples(str(path), "train_file", {})
    encoded = task.encode(
        read, FullTokenizer.from_pretrained(str(flags.model)), MAX_LENGTH, "train"
    )
    batches = []
    for _ in range(num_steps):
        rows = draws.choice(len(encoded.lengths), batch_size, replace=False)
        batches.append(encoded.features(rows, int(encoded.lengths[rows].max())))
    return task, batches


def our_losses(
    flags, task, batches: list[dict], dropout: bool, dtype: str = "float32"
) -> tuple[list[float], list[float]]:
    """Returns the loss before each update, and the seconds of each.

    Args:
        dtype: the type of the matrix products.
    """
    import tensorflow as tf

    from official_bert.checkpoints import load_checkpoint, named_variables
    from official_bert.config import BertConfig, read_config
    from official_bert.optimization import (
        EXCLUDED_FROM_DECAY,
        AdamWeightDecayOptimizer,
        WarmupLinearDecay,
    )
    from official_bert.training import precision
    from official_bert.training.loop import compiled_steps
    from official_bert.training.step import TrainingStep

    settings = read_config(str(flags.model / "config.json"), 512).to_dict()
    with precision.computing_in(dtype):
        model = task.build_model(BertConfig.from_dict(settings | ({} if dropout else _NO_DROPOUT)))
    load_checkpoint(model, str(flags.model))
    trained = {
        name: one.value
        for name, one in named_variables(model).items()
        if not name.startswith(getattr(model, "unused_weights", ()))
    }
    optimizer = AdamWeightDecayOptimizer(
        WarmupLinearDecay(LEARNING_RATE, len(batches), int(len(batches) * WARMUP_PROPORTION)),
        weight_decay_rate=0.01,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
    )
    optimizer.build(trained.items())
    step = TrainingStep(task.objective(model), list(trained.values()), optimizer, run_seed=1)
    run = compiled_steps(tf.distribute.get_strategy(), step)
    losses, secs = [], []
    for batch in batches:
        start = time.perf_counter()
        losses.append(
            run({name: tf.constant(values[None]) for name, values in batch.items()}, 1)["loss"]
        )
        secs.append(time.perf_counter() - start)
    return losses, secs


_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def their_losses(
    flags, name: str, batches: list[dict], dropout: bool, dtype: str = "float32"
) -> tuple[list[float], list[float]]:
    """Returns the loss of sentence-transformers before each update, and the seconds of each.

    Args:
        dtype: the type of the matrix products.
    """
    import torch

    model = their_model(flags.model, {} if dropout else _NO_DROPOUT)
    further = {}
    if name == "gist":
        # With their default, 0.01, the losses are near 0, and Adam enlarges the rounding errors.
        further = {"guide": their_model(flags.model), "temperature": 1 / 20}
    compute_loss = their_loss(LOSSES[name][1], model, **further)
    if widths := LOSSES[name][0].get("matryoshka"):
        from sentence_transformers import losses

        compute_loss = losses.MatryoshkaLoss(model, compute_loss, [int(width) for width in widths])
    update = adamw(model, len(batches)) if dropout else original_adam(model, len(batches))
    keys = {
        "input_ids": "input_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "segment_ids",
    }
    model.train()
    loss_values, secs = [], []
    for batch in batches:
        start = time.perf_counter()
        columns = [
            {
                key: torch.from_numpy(batch[ours][:, column].astype(np.int64)).to(model.device)
                for key, ours in keys.items()
            }
            for column in range(batch["input_ids"].shape[1])
        ]
        labels = (
            batch["scores"] if "scores" in batch else batch.get("targets", np.zeros((1, 1)))[:, 0]
        )
        labels = torch.from_numpy(labels).to(model.device)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = compute_loss(columns, labels)
        loss.backward()
        update()
        loss_values.append(loss.item())
        secs.append(time.perf_counter() - start)
    return loss_values, secs


def their_model(folder: pathlib.Path, config: dict | None = None):
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.backends.cuda.matmul.allow_tf32 = True  # as TensorFlow does
    model = SentenceTransformer(str(folder), config_kwargs=config or {})  # on a GPU if there is one
    model.max_seq_length = MAX_LENGTH
    return model


def their_loss(name: str, model, **further):
    from sentence_transformers import losses

    return getattr(losses, name)(model, **further)


def original_adam(model, num_steps: int):
    from finetuning_losses import OriginalAdam

    adam = OriginalAdam(
        model.named_parameters(), num_steps, int(num_steps * WARMUP_PROPORTION), LEARNING_RATE
    )
    return adam.step


def adamw(model, num_steps: int):
    """Returns the update of their trainer's defaults: no weight decay, the fused AdamW."""
    import torch
    import transformers

    adam = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, eps=1e-8, weight_decay=0.0, fused=True
    )
    warmup = int(num_steps * WARMUP_PROPORTION)
    schedule = transformers.get_linear_schedule_with_warmup(adam, warmup, num_steps)

    def update():
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        schedule.step()
        adam.zero_grad()

    return update
