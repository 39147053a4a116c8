"""Tagging words as a task: a softmax for the first piece of each. Devlin et al. (2019), section 5.3.

In: files read by data/conll.py and cut into windows by tasks/tagging/windows.py. Out: what tasks/base.py asks for, and
the predicted tags of each sentence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from official_bert.data.conll import ConllFile, in_scheme
from official_bert.metrics.entities import entity_scores
from official_bert.tasks.tagging.windows import EncodedWords, predicted_tags


@dataclasses.dataclass(frozen=True)
class EncodedSentences:
    """A data set as a model reads it, with the file that it is from.

    Attributes:
        source: the file.
        words: the words in their windows.
    """

    source: ConllFile
    words: EncodedWords

    @property
    def lengths(self) -> np.ndarray:
        """int64[n], tokens of each window."""
        return self.words.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """A batch of windows; see EncodedWords."""
        return self.words.features(rows, length)


class TaggingTask:
    """A task of run_ner.py."""

    main_metric = "eval_f1"
    untrained = ("bert/pooler",)  # the tags do not read it
    num_choices = None
    text_inputs: ClassVar = {"text": [None]}

    def __init__(self, labels: Sequence[str]):
        """Args: labels: all tags, in the order of the outputs."""
        self.labels = labels

    def build_model(self, config, use_one_hot_embeddings: bool):
        """A BertTagger with an output for each label."""
        from official_bert.modeling import BertTagger

        return BertTagger(config, len(self.labels), use_one_hot_embeddings)

    def losses(self, model, features: dict):
        """Float32[B*S]: cross-entropy of the label of each piece; it means nothing where there is none."""
        logits = model(features)
        return self._losses(logits, features)

    def weights(self, features: dict):
        """Float32[B*S]: 1 for the first piece of a word to be tagged, else 0."""
        from keras import ops

        return ops.reshape(ops.cast(features["label_mask"], "float32"), [-1])

    def outputs(self, model, features: dict) -> dict:
        """`tags`, int32[B, S], the most probable label of each piece.

        And `loss`, float32[B], the mean over the words of a window, and how many they are: `loss_weight`, float32[B].
        """
        from keras import ops

        logits = model(features)
        mask = ops.cast(features["label_mask"], "float32")
        losses = ops.reshape(self._losses(logits, features), ops.shape(mask))
        num_words = ops.sum(mask, axis=-1)
        return {
            "tags": ops.argmax(logits, axis=-1),
            "loss": ops.sum(losses * mask, axis=-1) / ops.maximum(num_words, 1.0),
            "loss_weight": num_words,
        }

    def serving_outputs(self, model, features: dict) -> dict:
        """`logits` and `probabilities`, float32[B, S, labels], and `tags`, string[B, S], "" at padding.

        A tag for each piece; that of a word is its first piece's.
        """
        import tensorflow as tf

        logits = tf.cast(model(features), tf.float32)
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            # Not tf.where of strings, which LiteRT lacks.
            "tags": tf.gather(
                tf.constant(["", *self.labels]), tf.where(features["input_mask"] > 0, best + 1, 0)
            ),
        }

    def serving_text(self, model, texts: dict, reader) -> dict:
        """The words of texts, [B, words] each, words being what white space separates.

        Returns:
            `num_words`, int32[B]; `words` and `tags`, string[B, words], "" behind the last; `starts` and `ends`,
            int32[B, words], their places in the text, in characters (code points), 0 behind the last.
        """
        import tensorflow as tf

        from official_bert.data.text.graph_inputs import in_batches, word_windows
        from official_bert.data.text.graph_tokenizer import readable

        def best(features):
            return tf.argmax(model(features), axis=-1, output_type=tf.int32)

        pieces = reader.tokenizer.pieces(texts["text"], unknown_words=True)
        windows = word_windows(pieces.ids, pieces.words, reader.max_seq_length, reader.vocab)
        # Each word has one first piece, which one window owns; windows and words are in the order of the texts.
        numbers = tf.boolean_mask(in_batches(best, windows.features, tf.int32), windows.is_own)
        starts, ends = pieces.word_starts, pieces.word_ends
        context = tf.gather(readable(texts["text"]), starts.value_rowids())
        words = tf.strings.substr(context, starts.values, ends.values - starts.values, unit="UTF8_CHAR")
        return {
            "num_words": tf.cast(starts.row_lengths(), tf.int32),
            "words": starts.with_values(words).to_tensor(""),
            "tags": starts.with_values(tf.gather(tf.constant(self.labels), numbers)).to_tensor(""),
            "starts": starts.to_tensor(),
            "ends": ends.to_tensor(),
        }

    def _losses(self, logits, features: dict):
        from keras import ops

        from official_bert.modeling.losses import cross_entropy

        logits = ops.reshape(logits, (-1, len(self.labels)))
        return cross_entropy(logits, ops.reshape(features["label_ids"], [-1]))

    def predictions(self, encoded: EncodedSentences, outputs: dict[str, np.ndarray]) -> list[list[str]]:
        """The tags of each sentence of the file."""
        numbers = encoded.words.of_words(outputs["tags"])
        return predicted_tags(encoded.source.sentences, numbers, self.labels)

    def metrics(self, encoded: EncodedSentences, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """What conlleval counts: `eval_precision`, `eval_recall`, `eval_f1` of all entities and of each type.

        And `eval_accuracy`, of the tags in the scheme of the file, as predictions.conll has them.
        """
        source = encoded.source
        targets = [[columns[-1] for columns in sentence.columns] for sentence in source.sentences]
        predictions = [in_scheme(tags, source.scheme) for tags in self.predictions(encoded, outputs)]
        scores = entity_scores(targets, predictions)
        return {f"eval_{name}": value for name, value in scores.items()}
