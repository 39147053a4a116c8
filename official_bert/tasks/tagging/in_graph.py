"""Tags raw text in a graph, in the windows that tasks/tagging/windows.py makes in Python.

In: strings, and a model. Out: the words of each text with their tags and offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from official_bert.data.text.graph_inputs import TextReader, in_batches, word_windows
from official_bert.data.text.graph_tokenizer import readable


def tag_words(
    model: Callable[[dict], tf.Tensor], texts: tf.Tensor, reader: TextReader, labels: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Tags the words of texts, which are split at white space.

    Args:
        model: a function from encoder features to logits, float[windows, S, labels].
        texts: string[B].
        reader: the reader of the export.
        labels: the labels in the order of the logits.

    Returns:
        `num_words`, int32[B]; `words` and `tags`, string[B, words], "" after the last word; `starts` and `ends`,
        int32[B, words], their offsets in the text, in characters (code points), 0 after the last word.
    """

    def best(features):
        return tf.argmax(model(features), axis=-1, output_type=tf.int32)

    pieces = reader.tokenizer.pieces(texts, unknown_words=True)
    windows = word_windows(pieces.ids, pieces.words, reader.max_seq_length, reader.vocab)
    # Each first piece of a word belongs to exactly one window; windows and words are in the order of the texts.
    numbers = tf.boolean_mask(in_batches(best, windows.features, tf.int32), windows.is_own)
    starts, ends = pieces.word_starts, pieces.word_ends
    context = tf.gather(readable(texts), starts.value_rowids())
    words = tf.strings.substr(context, starts.values, ends.values - starts.values, unit="UTF8_CHAR")
    return {
        "num_words": tf.cast(starts.row_lengths(), tf.int32),
        "words": starts.with_values(words).to_tensor(""),
        "tags": starts.with_values(tf.gather(tf.constant(labels), numbers)).to_tensor(""),
        "starts": starts.to_tensor(),
        "ends": ends.to_tensor(),
    }
