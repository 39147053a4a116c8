"""Writes the vectors of tokens as JSON lines: the runner of extract_features.py.

Lines are read, encoded and written batch by batch, so memory does not grow with the text.
"""

import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

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
# A number is formatted into these characters: sign, three digits, point, six decimals, comma,
# space.
_POINT = 4
_COMMA = _POINT + _DECIMALS + 1
_WIDTH = _COMMA + 2
# The limits of these characters, in millionths. Python formats smaller numbers other than 0 with an
# exponent. Larger ones have more than three digits before the point.
_SMALLEST, _TOO_LARGE = 100, 10**9
_ROWS_AT_ONCE = 64  # the digits of 64 vectors fit in the processor's cache


def format_json_vectors(vectors: np.ndarray) -> Iterator[str]:
    """Formats vectors as JSON arrays such as "[0.5, -1.25, 0.000123]".

    Args:
        vectors: float32[N, H].

    Yields:
        The array of each row, with numbers of six decimals.
    """
    scale = 10**_DECIMALS
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        rows = vectors[start : start + _ROWS_AT_ONCE]
        # A float32 times 10^6 is exact in float64, so that this rounds as round() does, ties to
        # even.
        millionths = np.rint(rows.astype(np.float64) * scale)
        size = np.abs(millionths)
        has_plain_form = (size >= _SMALLEST) & (size < _TOO_LARGE)
        is_regular = has_plain_form | (size == 0)
        regular_rows = is_regular.all(axis=1)
        texts = _format_rows(
            size=size[regular_rows].astype(np.uint32),
            is_negative=np.signbit(millionths[regular_rows]),
        )
        regular_texts = iter(texts)
        for row, is_regular_row in zip(millionths, regular_rows, strict=True):
            if is_regular_row:
                yield next(regular_texts)
            else:
                numbers = row / scale
                yield json.dumps(numbers.tolist())


def _format_rows(size: np.ndarray, is_negative: np.ndarray) -> list[str]:
    """Formats numbers as JSON arrays.

    Args:
        size: uint32[N, H], the absolute values in millionths, below 10^9.
        is_negative: bool[N, H].

    Returns:
        The N arrays.
    """
    shape = (*size.shape, _WIDTH)
    text = np.empty(shape, np.uint8)
    mask = np.ones(shape, bool)  # the characters that are part of the array
    text[..., 0] = ord("-")
    mask[..., 0] = is_negative
    text[..., _POINT] = ord(".")
    text[..., _COMMA:] = ord(","), ord(" ")
    mask[:, -1:, _COMMA:] = False

    # The decimals, from the last. Trailing zeros are left out, but 1.0 has one.
    rest = size
    has_digit_after = np.zeros(size.shape, bool)
    for index in range(_COMMA - 1, _POINT, -1):
        digit = rest % 10
        rest = rest // 10
        has_digit_after |= digit > 0
        text[..., index] = digit + ord("0")
        mask[..., index] = has_digit_after | (index == _POINT + 1)
    # The digits before the point, from the last. Leading zeros are left out, but 0.5 has one.
    for index in range(_POINT - 1, 0, -1):
        mask[..., index] = (rest > 0) | (index == _POINT - 1)
        digit = rest % 10
        rest = rest // 10
        text[..., index] = digit + ord("0")

    characters = text[mask].tobytes().decode("ascii")
    lengths = mask.sum(axis=(1, 2))
    bounds = [0, *np.cumsum(lengths).tolist()]
    return [f"[{characters[start:end]}]" for start, end in itertools.pairwise(bounds)]


_LOGGED_EXAMPLES = 5

Features = dict[str, np.ndarray]


def warn_about_tables(input_file: str, first_text: str) -> None:
    """Warns about JSON lines and tables, whose lines are read as texts.

    Args:
        input_file: the path of the input. The ending of its name may be that of a table.
        first_text: the first text of the input, or the first text of its first pair.
    """
    name = os.path.basename(input_file).lower()
    is_object = first_text.startswith("{") and first_text.endswith("}")
    if is_object or "\t" in first_text or name.endswith(_TABLE_ENDINGS):
        logging.warning(
            "%s: each line is read as a text, with its quotes, tabs and braces; write one text a "
            "line, and ||| between the texts of a pair",
            input_file,
        )


def run(options: ExtractionOptions) -> None:
    """Writes the features of every line of the input file.

    Args:
        options: the flags of extract_features.py.

    Raises:
        InputError: the model, a flag or a file cannot be used.
    """
    source = resolve(options)
    options = source.options
    if options.pooling and options.attentions:
        raise InputError(
            "--attentions: does not go with --pooling, which writes no tokens; leave one of them "
            "out"
        )
    writing.keep_apart(
        [options.output_file],
        _list_input_files(source),
    )
    strategy = _make_strategy(options)
    distribution.check_divides(
        options.batch_size,
        strategy.num_replicas_in_sync,
        "batch_size",
    )
    tokenizer = source.tokenizer
    layers = parse_layers(options.layers, source.config.num_hidden_layers)
    all_sentences = read_sentences(options.input_file)
    batches = _read_batches(all_sentences, options.batch_size)
    # An empty file is refused here, before anything is built or written.
    first = next(batches)
    warn_about_tables(options.input_file, first[0].text_a)

    with writing.replacing(options.output_file) as file:
        encode = _make_encoder(source, strategy, layers)
        progress = Progress("lines")
        num_lines = 0
        for sentences in itertools.chain([first], batches):
            inputs = [
                model_input(
                    tokenizer,
                    sentence.text_a,
                    sentence.text_b,
                    source.max_seq_length,
                )
                for sentence in sentences
            ]
            features = padded_features(inputs, tokenizer, source.max_seq_length)
            if sentences is first:
                check_unknown(tokenizer, features["input_ids"])
            _log_first(sentences, inputs, features)
            encoded = encode(features)
            _write(file, sentences, inputs, layers, encoded)
            num_lines = sentences[-1].line_index + 1
            progress(num_lines)
    logging.info("Wrote the features of %d lines to %s", num_lines, options.output_file)


def parse_layers(flag: str, num_hidden_layers: int) -> list[int]:
    """Parses the value of --layers.

    Args:
        flag: whole numbers, separated by commas.
        num_hidden_layers: the number of layers of the model.

    Returns:
        The numbers, of which negative ones count from the last layer.

    Raises:
        InputError: a word is not a number, or not that of a layer.
    """
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


def _list_input_files(source: ModelSource) -> dict[str, list[str]]:
    """Returns the paths of all input files, by flag."""
    options = source.options
    checkpoint = options.init_checkpoint
    checkpoint_files = files.matching(f"{checkpoint}.*")
    checkpoint_files += files.matching(f"{checkpoint}/*")
    return {
        "input_file": [options.input_file],
        "vocab_file": [source.vocab_file],
        "bert_config_file": [options.bert_config_file],
        "init_checkpoint": [checkpoint, *checkpoint_files],
    }


def _make_strategy(options: ExtractionOptions) -> tf.distribute.Strategy:
    if options.use_tpu and not options.master:
        raise InputError(
            "--use_tpu needs --master: the TPU's name or grpc:// address, or 'local' on a TPU VM"
        )
    return distribution.make_strategy(
        DistributionOptions(
            use_tpu=options.use_tpu,
            master=options.master,
            num_tpu_cores=options.num_tpu_cores,
        )
    )


def _make_encoder(
    source: ModelSource,
    strategy: tf.distribute.Strategy,
    layers: Sequence[int],
) -> Callable[[Features], dict[str, np.ndarray]]:
    """Builds the model and loads the weights.

    Returns:
        A function of a batch of features, int32[B, S] each. Its result has `vectors`, float32[B, S,
        layers, hidden], and with --attentions `attentions`, float32[B, layers, N, S, S]. With
        --pooling it only has `pooled`, float32[B, hidden].
    """
    options = source.options
    model = _load_model(source, strategy)

    def choose_layers(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        inputs = [features[name] for name in ENCODER_INPUTS]
        outputs = model(*inputs, output_attentions=options.attentions)
        # TensorFlow prunes the layers above the last chosen one, and the pooler, from the graph.
        if options.pooling:
            sentence_vectors = pooled(
                options.pooling,
                outputs.all_encoder_layers[layers[0]],
                features["input_mask"],
            )
            return {"pooled": sentence_vectors}
        layer_vectors = [outputs.all_encoder_layers[layer] for layer in layers]
        vectors = tf.stack(layer_vectors, axis=2)
        results = {"vectors": tf.cast(vectors, tf.float32)}
        if options.attentions:
            probabilities = [outputs.all_attention_probabilities[layer] for layer in layers]
            results["attentions"] = tf.stack(probabilities, axis=1)
        return results

    # With a signature, all batch sizes share one trace. On a TPU the size is constant, and the
    # parts of the replicas have no signature.
    specs = {
        feature.name: tf.TensorSpec([None, feature.length], feature.dtype)
        for feature in encoder_features(source.max_seq_length)
    }

    signature = None if options.use_tpu else [specs]

    @tf.function(input_signature=signature, autograph=False)
    def run_replicas(parts: Any) -> Any:
        return strategy.run(choose_layers, args=(parts,))

    def encode(features: Features) -> dict[str, np.ndarray]:
        num_examples = len(features["input_ids"])
        if options.use_tpu:
            num_missing = options.batch_size - num_examples
            padding = ((0, num_missing), (0, 0))
            features = {name: np.pad(values, padding) for name, values in features.items()}
        parts = distribution.split_over_replicas(strategy, features, axis=0)
        outputs = {}
        for name, result in run_replicas(parts).items():
            local_results = strategy.experimental_local_results(result)
            outputs[name] = np.concatenate(local_results)[:num_examples]
        return outputs

    return encode


def _load_model(source: ModelSource, strategy: tf.distribute.Strategy) -> BertModel:
    """Builds the encoder and loads its weights."""
    options = source.options
    precision.check_dtype(options.dtype, strategy)
    dtype, _ = precision.choose(options.dtype, strategy)
    with strategy.scope(), precision.computing_in(dtype):
        model = BertModel(
            source.config,
            use_one_hot_embeddings=options.use_one_hot_embeddings,
        )
    report = load_checkpoint(model, source.checkpoint)
    if not options.allow_missing_weights:
        report.check_complete(unused=("bert/pooler/",))
    check_stored_config(report.path, source.config)
    report.log(model)
    return model


def _read_batches(sentences: Iterator[TextLine], batch_size: int) -> Iterator[list[TextLine]]:
    while batch := list(itertools.islice(sentences, batch_size)):
        yield batch


def _write(
    file: TextIO,
    sentences: Sequence[TextLine],
    inputs: Sequence[ModelInput],
    layers: Sequence[int],
    encoded: dict[str, np.ndarray],
):
    """Writes a line for each sentence.

    The original spells the key "linex_index". `encoded` is the result of the function that
    `_make_encoder` returns.
    """
    if "pooled" in encoded:
        texts = format_json_vectors(encoded["pooled"])
        for sentence, text in zip(sentences, texts, strict=True):
            file.write(f'{{"linex_index": {sentence.line_index}, "values": {text}}}\n')
        return
    for row, sentence in enumerate(sentences):
        tokens = inputs[row].tokens
        vectors = encoded["vectors"][row]
        hidden_size = vectors.shape[-1]
        token_vectors = vectors[: len(tokens)].reshape(-1, hidden_size)
        texts = format_json_vectors(token_vectors)
        features = []
        for token in tokens:
            values = [f'{{"index": {layer}, "values": {next(texts)}}}' for layer in layers]
            layers_text = ", ".join(values)
            features.append(f'{{"token": {json.dumps(token)}, "layers": [{layers_text}]}}')
        fields = f'"features": [{", ".join(features)}]'
        if "attentions" in encoded:
            attentions = _format_attentions(
                encoded["attentions"][row],
                len(tokens),
                layers,
            )
            fields += f', "attentions": [{attentions}]'
        file.write(f'{{"linex_index": {sentence.line_index}, {fields}}}\n')


def _format_attentions(
    probabilities: np.ndarray,
    num_tokens: int,
    layers: Sequence[int],
) -> str:
    """Returns the JSON objects of the layers, without padding, for float32[layers, N, S, S]."""
    num_heads = probabilities.shape[1]
    without_padding = probabilities[..., :num_tokens, :num_tokens]
    rows = format_json_vectors(without_padding.reshape(-1, num_tokens))
    texts = []
    for layer in layers:
        heads = []
        for _ in range(num_heads):
            head_rows = itertools.islice(rows, num_tokens)
            heads.append(f"[{', '.join(head_rows)}]")
        heads_text = ", ".join(heads)
        texts.append(f'{{"index": {layer}, "heads": [{heads_text}]}}')
    return ", ".join(texts)


def _log_first(sentences: Sequence[TextLine], inputs: Sequence[ModelInput], features: Features):
    for row, sentence in enumerate(sentences):
        if sentence.line_index >= _LOGGED_EXAMPLES:
            return
        tokens = inputs[row].tokens
        log_example(
            tokens,
            sentence.line_index == 0,
            functools.partial(_list_details, sentence, tokens, features, row),
        )


def _list_details(
    sentence: TextLine, tokens: Sequence[str], features: Features, row: int
) -> Iterator[str]:
    yield f"unique_id: {sentence.line_index}"
    yield f"tokens: {' '.join(tokens)}"
    for name, title in (
        ("input_ids", "input_ids"),
        ("input_mask", "input_mask"),
        ("segment_ids", "input_type_ids"),
    ):
        values = features[name][row].tolist()
        yield f"{title}: {' '.join(map(str, values))}"
