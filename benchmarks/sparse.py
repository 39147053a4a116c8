#!/usr/bin/env python3
"""Compares the training of sparse embeddings with sentence-transformers on PyTorch: the losses and
the seconds of updates from the same weights with the same batches, without dropout.

    python benchmarks/sparse.py --data=train.tsv --vocab_file=vocab.txt --output=sparse.jsonl

--data is a table of queries, documents and perhaps negatives. The model is a masked LM with random
weights and the size of --layers and --hidden_size. Their SpladeLoss is trained with the original's
optimizer of finetuning_losses.py; the weights of its regularisation follow the quadratic schedule.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np

LEARNING_RATE, WARMUP_PROPORTION = 2e-5, 0.1
QUERY_FLOPS, DOCUMENT_FLOPS, FLOPS_WARMUP = 5e-2, 3e-2, 1 / 3
VARIANTS = {  # the loss and the encoder of queries
    "multiple_negatives_ranking": ("multiple_negatives_ranking", "model"),
    "margin_mse": ("margin_mse", "model"),
    "multiple_negatives_ranking, idf queries": ("multiple_negatives_ranking", "idf"),
    "multiple_negatives_ranking, lookup queries": ("multiple_negatives_ranking", "lookup"),
}


def write_model(flags, folder: pathlib.Path) -> str:
    """Writes a masked LM with random weights and no dropout."""
    from official_bert import BertPretrainer, FullTokenizer
    from official_bert.config import BertConfig
    from official_bert.training.starting_point import seed_initial_weights

    tokenizer = FullTokenizer(flags.vocab_file)
    config = BertConfig.from_dict(
        {
            "vocab_size": len(tokenizer.vocab),
            "hidden_size": flags.hidden_size,
            "num_hidden_layers": flags.layers,
            "num_attention_heads": max(1, flags.hidden_size // 64),
            "intermediate_size": 4 * flags.hidden_size,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "initializer_range": 0.02,
        }
    )
    seed_initial_weights(1)
    model = BertPretrainer(config)
    # The model begins with a few hundred words for a text, not with half of the vocabulary.
    bias = model.cls.predictions.output_bias
    bias.assign(np.full(bias.shape, flags.bias, np.float32))
    model.save_pretrained(str(folder / "model"), tokenizer=tokenizer)
    return str(folder / "model")


def make_batches(flags, task, model_folder: str) -> list[dict]:
    """Returns batches of randomly drawn examples, padded to their longest text."""
    from official_bert.data.text_tables import read_examples
    from official_bert.tokenization import FullTokenizer

    examples = read_examples(flags.data, "data", {})
    draws = np.random.default_rng(0)
    if task._settings.loss == "margin_mse":
        # A text of another example is the negative.
        answers = [example.positives[0] for example in examples]
        examples = [
            example._replace(
                positives=example.positives[:1],
                negatives=(answers[(number + 7) % len(answers)],),
                label=f"{draws.normal():.3f}",
            )
            for number, example in enumerate(examples)
        ]
    else:
        examples = [example._replace(label="") for example in examples]
    tokenizer = FullTokenizer.from_pretrained(model_folder)
    encoded = task.encode(examples, tokenizer, flags.max_length, "train")
    batches = []
    while len(batches) < flags.updates:
        rows = draws.choice(len(encoded.lengths), flags.batch_size, replace=False)
        batch = encoded.features(rows, int(encoded.lengths[rows].max()))
        # Their loss knows no equal texts.
        if len(np.unique(encoded.rows[rows])) == encoded.rows[rows].size:
            batches.append(batch)
    return batches


def our_losses(task, folder: str, batches: list[dict]) -> tuple[list[float], list[float]]:
    """Returns the loss before each update, and the seconds of each."""
    import tensorflow as tf

    from official_bert.checkpoints import load_checkpoint, named_variables
    from official_bert.config import read_config
    from official_bert.optimization import (
        EXCLUDED_FROM_DECAY,
        AdamWeightDecayOptimizer,
        WarmupLinearDecay,
    )
    from official_bert.training.loop import compiled_steps
    from official_bert.training.step import TrainingStep

    model = task.build_model(read_config(f"{folder}/bert_config.json", 512))
    load_checkpoint(model, folder)
    trained = {
        name: one.value
        for name, one in named_variables(model).items()
        if not name.startswith(model.unused_weights)
    }
    optimizer = AdamWeightDecayOptimizer(
        WarmupLinearDecay(LEARNING_RATE, len(batches), int(len(batches) * WARMUP_PROPORTION)),
        weight_decay_rate=0.01,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
    )
    optimizer.build(trained.items())
    objective = task.objective(model)
    objective.follow(optimizer.global_step, len(batches))
    step = TrainingStep(objective, list(trained.values()), optimizer, run_seed=1)
    run = compiled_steps(tf.distribute.get_strategy(), step)
    losses, secs = [], []
    for batch in batches:
        start = time.perf_counter()
        batch = {name: tf.constant(values[None]) for name, values in batch.items()}
        losses.append(float(run(batch, 1)["loss"]))
        secs.append(time.perf_counter() - start)
    return losses, secs


def their_losses(task, folder: str, batches: list[dict]) -> tuple[list[float], list[float]]:
    """Returns the loss of sentence-transformers before each update, and the seconds of each."""
    import torch
    from finetuning_losses import OriginalAdam
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder import losses

    model = SparseEncoder(folder, device="cpu")
    names = {
        "multiple_negatives_ranking": losses.SparseMultipleNegativesRankingLoss,
        "margin_mse": losses.SparseMarginMSELoss,
    }
    has_model = task.query_encoder == "model"
    loss = losses.SpladeLoss(
        model,
        names[task._settings.loss](model),
        document_regularizer_weight=DOCUMENT_FLOPS,
        query_regularizer_weight=QUERY_FLOPS if has_model else None,
    )
    trained = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    adam = OriginalAdam(trained, len(batches), int(len(batches) * WARMUP_PROPORTION), LEARNING_RATE)
    keys = {"input_ids": "input_ids", "attention_mask": "input_mask"}
    keys["token_type_ids"] = "segment_ids"
    num_warmup = max(1, int(len(batches) * FLOPS_WARMUP))
    model.train()
    values, secs = [], []
    for number, batch in enumerate(batches):
        start = time.perf_counter()
        share = min(1.0, number / num_warmup) ** 2
        loss.document_regularizer_weight = DOCUMENT_FLOPS * share
        if has_model:
            loss.query_regularizer_weight = QUERY_FLOPS * share
        columns = []
        for column in range(batch["input_ids"].shape[1]):
            texts = {
                key: torch.from_numpy(batch[ours][:, column].astype(np.int64))
                for key, ours in keys.items()
            }
            if not has_model:
                texts["task"] = "document" if column else "query"
                texts["modality"] = "text"
                if not column:
                    # A look-up reads no [CLS] and [SEP].
                    mask = texts["attention_mask"]
                    mask[torch.arange(len(mask)), mask.sum(1) - 1] = 0
                    mask[:, 0] = 0
            columns.append(texts)
        labels = torch.from_numpy(batch.get("scores", np.zeros(1)))
        total = sum(loss(columns, labels).values())
        total.backward()
        adam.step()
        values.append(total.item())
        secs.append(time.perf_counter() - start)
    return values, secs


def compare(flags, name: str, folder: pathlib.Path) -> dict:
    """Trains both sides, and returns a row."""
    from official_bert.catalog import options_class
    from official_bert.commands import convert_checkpoint
    from official_bert.extensions.sparse.settings import SparseSettings
    from official_bert.extensions.sparse.task import SparseTask

    loss, query_encoder = VARIANTS[name]
    settings = SparseSettings(
        loss=loss,
        query_flops=QUERY_FLOPS,
        document_flops=DOCUMENT_FLOPS,
        flops_warmup=FLOPS_WARMUP,
    )
    task = SparseTask(query_encoder, settings=settings)
    plain = write_model(flags, folder)
    batches = make_batches(flags, task, plain)

    # The model of both sides, with the weights of queries.
    from official_bert.checkpoints import load_checkpoint, loading, named_variables
    from official_bert.config import read_config
    from official_bert.model_dir import TaskRecord, write_companion_files
    from official_bert.tokenizer_config import TokenizerConfig

    config = read_config(f"{plain}/bert_config.json", 512)
    model = task.build_model(config)
    load_checkpoint(model, plain)
    ours = folder / "ours"
    ours.mkdir()
    tensors = {name: one.numpy() for name, one in named_variables(model).items()}
    loading.write(str(ours), tensors, config)
    record = TaskRecord("sparse_embedding", "sparse_embedding", task.settings())
    vocab_file = f"{plain}/vocab.txt"
    write_companion_files(str(ours), vocab_file, TokenizerConfig(), record)
    options = options_class("convert_checkpoint")(
        model=str(ours), output_dir=str(folder / "theirs"), output_format="huggingface"
    )
    convert_checkpoint.run(options)

    our_values, our_secs = our_losses(task, str(ours), batches)
    their_values, their_secs = their_losses(task, str(folder / "theirs"), batches)
    relative = np.abs(np.subtract(our_values, their_values)) / np.abs(their_values)
    return {
        "variant": name,
        "updates": len(batches),
        "largest_difference": float(relative.max()),
        "first_loss": our_values[0],
        "last_loss": our_values[-1],
        # The first updates compile the step.
        "our_secs": statistics.median(our_secs[3:]),
        "their_secs": statistics.median(their_secs[3:]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--variants", default=",,".join(VARIANTS), help="separated by ,,")
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--max_length", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden_size", type=int, default=128)
    parser.add_argument("--bias", type=float, default=-0.6, help="of the words' logits")
    flags = parser.parse_args()
    from training_step import machine

    for name in flags.variants.split(",,"):
        with tempfile.TemporaryDirectory() as folder:
            row = compare(flags, name, pathlib.Path(folder))
        sizes = {key: getattr(flags, key) for key in ("batch_size", "max_length", "layers")}
        row |= sizes | {"hidden_size": flags.hidden_size, "machine": machine()}
        print(json.dumps(row))
        with open(flags.output, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
