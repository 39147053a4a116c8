"""Writes the vectors of tokens as JSON lines: the runner of extract_features.py.

Lines are read, encoded and written batch by batch, so memory does not grow with the text.
"""

import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import load_checkpoint
from official_bert.data.model_inputs import (
    ModelInput,
    check_unknown,
    log_example,
    model_input,
    padded_features,
)
from official_bert.data.tables import TextLine, read_sentences
from official_bert.features import ENCODER_INPUTS, encoder_features
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.model_source import ModelSource, check_stored_config, resolve
from official_bert.modeling import BertModel
from official_bert.modeling.heads import pooled
from official_bert.options.serving import ExtractionOptions
from official_bert.options.shared import DistributionOptions
from official_bert.training import distribution, precision

_TABLE_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
_DECIMALS = 6
_POINT = 4  # a number's characters: sign, three digits, point, six decimals, comma, space
_COMMA = _POINT + _DECIMALS + 1
_WIDTH = _COMMA + 2
# In millionths. Python writes smaller numbers other than 0 with an exponent, and larger ones have
# more than three digits before the point.
_SMALLEST, _TOO_LARGE = 100, 10**9
_ROWS_AT_ONCE = 64  # the digits of 64 vectors fit in the processor's cache


def format_json_vectors(vectors: np.ndarray) -> Iterator[str]:
    """Yields the N rows of float32[N, H] as JSON arrays such as "[0.5, -1.25, 0.000123]"."""
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        # A float64 holds a float32 times 10^6 exactly, so this rounds as round() does, ties to
        # even.
        millionths = np.rint(
            vectors[start : start + _ROWS_AT_ONCE].astype(np.float64) * 10**_DECIMALS
        )
        size = np.abs(millionths)
        usual = (((size >= _SMALLEST) & (size < _TOO_LARGE)) | (size == 0)).all(axis=1)
        texts = iter(_digits(size[usual].astype(np.uint32), np.signbit(millionths[usual])))
        for row, is_usual in enumerate(usual):
            yield (
                next(texts) if is_usual else json.dumps((millionths[row] / 10**_DECIMALS).tolist())
            )


def _digits(size: np.ndarray, negative: np.ndarray) -> list[str]:
    """Writes uint32[N, H] millionths below 10^9, negative where bool[N, H] says so, as N JSON
    arrays.
    """
    text = np.empty((*size.shape, _WIDTH), np.uint8)  # [N, H, width]
    kept = np.ones(text.shape, bool)
    text[..., 0] = ord("-")
    kept[..., 0] = negative
    text[..., _POINT] = ord(".")
    text[..., _COMMA:] = ord(","), ord(" ")
    kept[:, -1:, _COMMA:] = False

    rest, nonzero_after = size, np.zeros(size.shape, bool)
    for index in range(_COMMA - 1, _POINT, -1):
        rest, digit = rest // 10, rest % 10
        nonzero_after |= digit > 0
        text[..., index] = digit + ord("0")
        # Trailing zeros go, but 1.0 keeps one.
        kept[..., index] = nonzero_after | (index == _POINT + 1)
    for index in range(_POINT - 1, 0, -1):
        kept[..., index] = (rest > 0) | (index == _POINT - 1)  # leading zeros go, but 0.5 keeps one
        rest, digit = rest // 10, rest % 10
        text[..., index] = digit + ord("0")

    characters = text[kept].tobytes().decode("ascii")
    ends = np.cumsum(kept.sum(axis=(1, 2))).tolist()
    return [f"[{characters[begin:end]}]" for begin, end in zip([0, *ends], ends, strict=False)]


_LOGGED_EXAMPLES = 5

Features = dict[str, np.ndarray]


def _warn_of_tables(input_file: str, first_text: str):
    """Warns of JSON lines and tables, whose lines are read as texts, as those of a log may be."""
    name = os.path.basename(input_file).lower()
    is_object = first_text.startswith("{") and first_text.endswith("}")
    if is_object or "\t" in first_text or name.endswith(_TABLE_ENDINGS):
        logging.warning(
            "%s: each line is read as a text, with its quotes, tabs and braces; write one text a "
            "line, and ||| between the texts of a pair",
            input_file,
        )


def run(options: ExtractionOptions):
    """Writes the features of every line of the input file."""
    source = resolve(options)
    options = source.options
    if options.pooling and options.attentions:
        raise InputError(
            "--attentions: does not go with --pooling, which writes no tokens; leave one of them "
            "out"
        )
    writing.keep_apart([options.output_file], _inputs(options))
    strategy = _make_strategy(options)
    distribution.check_divides(options.batch_size, strategy.num_replicas_in_sync, "batch_size")
    config, tokenizer = source.config, source.tokenizer
    layers = parse_layers(options.layers, config.num_hidden_layers)
    batches = _batches(read_sentences(options.input_file), options.batch_size)
    first = next(batches)  # reports an empty file before anything is built or written
    _warn_of_tables(options.input_file, first[0].text_a)

    with writing.replacing(options.output_file) as file:
        encode = _encoder(source, strategy, layers)
        progress = Progress("lines")
        for sentences in itertools.chain([first], batches):
            inputs = [
                model_input(tokenizer, sentence.text_a, sentence.text_b, options.max_seq_length)
                for sentence in sentences
            ]
            features = padded_features(inputs, tokenizer, options.max_seq_length)
            if sentences is first:
                check_unknown(tokenizer, features["input_ids"])
            _log_first(sentences, inputs, features)
            _write(file, sentences, inputs, layers, encode(features))
            progress(sentences[-1].line_index + 1)
    logging.info(
        "Wrote the features of %d lines to %s", sentences[-1].line_index + 1, options.output_file
    )


def parse_layers(flag: str, num_hidden_layers: int) -> list[int]:
    try:
        numbers = [int(word) for word in flag.split(",")]
    except ValueError:
        raise InputError(
            f"--layers={flag}: must be whole numbers separated by commas, such as -1,-2"
        ) from None
    for number in numbers:
        if not -num_hidden_layers <= number < num_hidden_layers:
            raise InputError(
                f"--layers={flag}: the model has no layer {number}; its {num_hidden_layers} layers "
                f"are 0 to {num_hidden_layers - 1}, or {-num_hidden_layers} to -1"
            )
    return numbers


def _inputs(options: ExtractionOptions) -> dict[str, list[str]]:
    checkpoint = options.init_checkpoint
    return {
        "input_file": [options.input_file],
        "vocab_file": [options.vocab_file],
        "bert_config_file": [options.bert_config_file],
        "init_checkpoint": [
            checkpoint,
            *files.matching(f"{checkpoint}.*"),
            *files.matching(f"{checkpoint}/*"),
        ],
    }


def _make_strategy(options: ExtractionOptions) -> tf.distribute.Strategy:
    if options.use_tpu and not options.master:
        raise InputError(
            "--use_tpu needs --master: the TPU's name or grpc:// address, or 'local' on a TPU VM"
        )
    return distribution.make_strategy(
        DistributionOptions(
            use_tpu=options.use_tpu, master=options.master, num_tpu_cores=options.num_tpu_cores
        )
    )


def _encoder(
    source: ModelSource, strategy: tf.distribute.Strategy, layers: Sequence[int]
) -> Callable[[Features], dict[str, np.ndarray]]:
    """Builds the model with the checkpoint's weights; returns a function of a batch of features,
    int32[B, S] each.

    Its result has `vectors`, float32[B, S, layers, hidden], and with --attentions `attentions`,
    float32[B, layers, N, S, S]; with --pooling it has only `pooled`, float32[B, hidden].
    """
    options = source.options
    precision.check_dtype(options.dtype, strategy)
    dtype, _ = precision.choose(options.dtype, strategy)
    with strategy.scope(), precision.computing_in(dtype):
        model = BertModel(source.config, use_one_hot_embeddings=options.use_one_hot_embeddings)
    report = load_checkpoint(model, source.checkpoint)
    if not options.allow_missing_weights:
        report.check_complete(unused=("bert/pooler/",))
    check_stored_config(report.path, source.config)
    report.log(model)

    def chosen_layers(features):
        inputs = (features[name] for name in ENCODER_INPUTS)
        outputs = model(*inputs, output_attentions=options.attentions)
        # TensorFlow prunes the layers above the last chosen one, and the pooler, from the graph.
        if options.pooling:
            vectors = outputs.all_encoder_layers[layers[0]]
            return {"pooled": pooled(options.pooling, vectors, features["input_mask"])}
        vectors = tf.stack([outputs.all_encoder_layers[layer] for layer in layers], axis=2)
        chosen = {"vectors": tf.cast(vectors, tf.float32)}
        if options.attentions:
            probabilities = [outputs.all_attention_probabilities[layer] for layer in layers]
            chosen["attentions"] = tf.stack(probabilities, axis=1)
        return chosen

    table = encoder_features(options.max_seq_length)
    # The signature gives one trace for all batch sizes; on TPU the size is constant, and no
    # signature fits replicas.
    signature = [
        {feature.name: tf.TensorSpec([None, feature.length], feature.dtype) for feature in table}
    ]

    @tf.function(input_signature=None if options.use_tpu else signature, autograph=False)
    def on_replicas(parts):
        return strategy.run(chosen_layers, args=(parts,))

    def encode(features):
        num_examples = len(features["input_ids"])
        if options.use_tpu:
            padding = ((0, options.batch_size - num_examples), (0, 0))
            features = {name: np.pad(values, padding) for name, values in features.items()}
        results = on_replicas(distribution.split_over_replicas(strategy, features, axis=0))
        return {
            name: np.concatenate(strategy.experimental_local_results(result))[:num_examples]
            for name, result in results.items()
        }

    return encode


def _batches(sentences: Iterator[TextLine], batch_size: int) -> Iterator[list[TextLine]]:
    while batch := list(itertools.islice(sentences, batch_size)):
        yield batch


def _write(
    file: TextIO,
    sentences: Sequence[TextLine],
    inputs: Sequence[ModelInput],
    layers: Sequence[int],
    encoded: dict[str, np.ndarray],
):
    """Writes a line for each sentence; `encoded` is what the function of `_encoder` returns."""
    if "pooled" in encoded:
        for sentence, text in zip(sentences, format_json_vectors(encoded["pooled"]), strict=True):
            file.write(f'{{"linex_index": {sentence.line_index}, "values": {text}}}\n')
        return
    for row, (sentence, (tokens, _)) in enumerate(zip(sentences, inputs, strict=True)):
        vectors = encoded["vectors"][row]
        texts = format_json_vectors(vectors[: len(tokens)].reshape(-1, vectors.shape[-1]))
        features = []
        for token in tokens:
            values = [f'{{"index": {layer}, "values": {next(texts)}}}' for layer in layers]
            features.append(f'{{"token": {json.dumps(token)}, "layers": [{", ".join(values)}]}}')
        attentions = ""
        if "attentions" in encoded:
            attentions = f', "attentions": [{_attention_text(encoded["attentions"][row], len(tokens), layers)}]'
        # The original spells the key this way.
        file.write(
            f'{{"linex_index": {sentence.line_index}, "features": [{", ".join(features)}]{attentions}}}\n'
        )


def _attention_text(probabilities: np.ndarray, num_tokens: int, layers: Sequence[int]) -> str:
    """Returns the JSON objects of the layers, without padding, for float32[layers, N, S, S]."""
    num_heads = probabilities.shape[1]
    rows = format_json_vectors(probabilities[..., :num_tokens, :num_tokens].reshape(-1, num_tokens))
    texts = []
    for layer in layers:
        heads = [f"[{', '.join(itertools.islice(rows, num_tokens))}]" for _ in range(num_heads)]
        texts.append(f'{{"index": {layer}, "heads": [{", ".join(heads)}]}}')
    return ", ".join(texts)


def _log_first(sentences: Sequence[TextLine], inputs: Sequence[ModelInput], features: Features):
    for row, (sentence, (tokens, _)) in enumerate(zip(sentences, inputs, strict=True)):
        if sentence.line_index >= _LOGGED_EXAMPLES:
            return
        log_example(
            tokens,
            sentence.line_index == 0,
            functools.partial(_details, sentence, tokens, features, row),
        )


def _details(
    sentence: TextLine, tokens: Sequence[str], features: Features, row: int
) -> Iterator[str]:
    yield f"unique_id: {sentence.line_index}"
    yield f"tokens: {' '.join(tokens)}"
    for name, title in (
        ("input_ids", "input_ids"),
        ("input_mask", "input_mask"),
        ("segment_ids", "input_type_ids"),
    ):
        yield f"{title}: {' '.join(map(str, features[name][row].tolist()))}"
