"""Word tagging as a task: a softmax for the first piece of each word. Devlin et al. (2019),
section 5.3.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert import catalog
from official_bert.data.table_formats import OTHER_ENDINGS, is_table, read_tagged
from official_bert.data.tables import (
    TAG_FORMS,
    ConllFile,
    Sentence,
    is_tag,
    read_conll,
    write_predictions,
)
from official_bert.data.tag_schemes import IOB2, restore_scheme
from official_bert.graph_text.text_reader import TextReader, run_in_batches
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.metrics import calibration
from official_bert.metrics.entities import entity_scores, find_entities
from official_bert.modeling import BertTagger
from official_bert.modeling.losses import cross_entropy
from official_bert.tasks import temperature
from official_bert.tasks.base import DataFiles, Task, TaskObjective
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, numbers
from official_bert.tasks.settings import TaskSettings, recorded
from official_bert.tasks.tagging.windows import (
    EncodedWords,
    check_words,
    collect_labels,
    encoded_words,
    predicted_tags,
)
from official_bert.tokenization import BasicTokenizer, find_words

if TYPE_CHECKING:
    import keras

    from official_bert.config import BertConfig
    from official_bert.modeling.layers import Tensor
    from official_bert.tokenization import FullTokenizer


def tag_words(
    model: Callable[[dict], tf.Tensor],
    texts: tf.Tensor,
    reader: TextReader,
    labels: Sequence[str],
    pre_tokenized: bool,
) -> dict[str, tf.Tensor]:
    """Tags the words of texts with a model.

    Args:
        model: maps encoder features to logits, float[windows, S, labels].
        texts: string[B].
        reader: makes windows of the texts.
        labels: the tags in the order of the logits.
        pre_tokenized: whether only white space separates words. Otherwise, punctuation and
            ideographs are words of their own.

    Returns:
        `num_words`, int32[B]; `words` and `tags`, string[B, words], "" after the last word;
        `starts` and `ends`, int32[B, words], their offsets in the text in code points, 0 after the
        last word.
    """

    def best(features: dict):
        return tf.argmax(model(features), axis=-1, output_type=tf.int32)

    pieces = reader.tokenizer.pieces(texts, unknown_words=True, splits_tokens=not pre_tokenized)
    windows = reader.word_windows(pieces.ids, pieces.words)
    # Each first piece of a word belongs to exactly one window; windows and words are in the order
    # of the texts.
    numbers = tf.boolean_mask(
        run_in_batches(best, windows.features, tf.int32), windows.has_prediction
    )
    starts, ends = pieces.word_starts, pieces.word_ends
    words = reader.tokenizer.substrings(texts, starts.value_rowids(), starts.values, ends.values)
    return {
        "num_words": tf.cast(starts.row_lengths(), tf.int32),
        "words": starts.with_values(words).to_tensor(""),
        "tags": starts.with_values(tf.gather(tf.constant(labels), numbers)).to_tensor(""),
        "starts": starts.to_tensor(),
        "ends": ends.to_tensor(),
    }


_find_words = re.compile("[^ \t\r\n]+").finditer
_MIN_SENTENCE_IDEOGRAPHS = 4  # a text of so many without a blank is hardly one word
_ends_a_sentence = re.compile(r"[^\s.?!][.?!]\s*$").search
_FILE_ENDINGS = (".conll", ".txt", ".json", *OTHER_ENDINGS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingSettings(TaskSettings):
    """The settings of run_ner.py and of the record of a tagger; flags have their help texts.

    Attributes:
        checkpoint_labels: the tags of the checkpoint that the run starts from; None if unknown.
        pre_tokenized: whether only blanks separate the words of a text that is tagged; None in the
            record of an earlier version, whose exports of text separate words at blanks.
        temperature: what logits are divided by for probabilities; None for 1.
    """

    pre_tokenized: bool | None = recorded()
    temperature: float | None = recorded()
    labels: Sequence[str] | None = None
    checkpoint_labels: Sequence[str] | None = None
    document_context: bool = False
    calibrate: bool = False


class TaggingTask(Task):
    main_metric = "eval_f1"
    settings_class = TaggingSettings
    text_inputs: ClassVar = {"text": [None]}
    temperature: float | None = None  # by which logits are divided for probabilities; None for 1
    keeps_logits = False  # for an evaluation of the probabilities
    pre_tokenized = False  # whether only blanks separate the words of a text in a prediction

    def __init__(self, labels: Sequence[str] | None = None, document_context: bool = False):
        """Sets the tags in the order of the outputs, None for those of the training file, and
        the kind of windows.
        """
        self.labels, self._document_context = labels, document_context

    @classmethod
    def from_settings(cls, variant: None, settings: TaggingSettings) -> Self:
        labels = settings.labels or settings.checkpoint_labels
        others = [label for label in labels or () if not is_tag(label)]
        if others:
            raise InputError(
                f"{', '.join(others)}: no tags ({TAG_FORMS}), so the model is of another task; "
                "name a checkpoint that run_ner.py trained, or correct --labels"
            )
        if labels and len(set(labels)) < len(labels):
            raise InputError(
                f"--labels={','.join(labels)}: names a tag twice; name each output once"
            )
        task = cls(labels, settings.document_context)
        task.pre_tokenized = bool(settings.pre_tokenized)
        if not settings.do_train:
            task.temperature = temperature.check_temperature(settings.temperature)
        task.keeps_logits = bool(settings.calibrate or task.temperature)
        return task

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, ConllFile]:
        """Reads the set's file; the training file defines the labels."""
        if set_name != "train":
            self._known_labels()
        names = [set_name + ending for ending in _FILE_ENDINGS]
        path, labelled = data_files.path(set_name, names), set_name != "test"
        source = _read_by_extensions(path, labelled)
        if source is None and is_table(path):
            source = read_tagged(path, f"{set_name}_file", labelled)
        if source is None:
            source = read_conll(path, labelled)
        if set_name == "train":
            self.labels = collect_labels(source.sentences)
        if set_name == "test":
            self._check_columns()
        check_words(source, self._known_labels(), self._document_context)
        return {"": source}

    def _check_columns(self):
        """Raises InputError if predictions.conll can't contain the tags."""
        labels = self._known_labels()
        if with_blanks := [label for label in labels if re.search(r"[ \t\r\n]", label)]:
            raise InputError(
                f"{with_blanks[0]!r}: the tag has a blank, which separates the columns of "
                "predictions.conll; use official-bert predict, or train on types without blanks"
            )

    def encode(
        self, examples: ConllFile, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedWords:
        return encoded_words(
            examples, self._known_labels(), max_seq_length, tokenizer, self._document_context
        )

    def build_model(self, config: BertConfig, **arguments: Any) -> BertTagger:
        return BertTagger(config, len(self._known_labels()), **arguments)

    def _known_labels(self) -> Sequence[str]:
        if self.labels is None:
            raise InputError(
                "no labels.txt beside the checkpoint: give the --output_dir of a training run as "
                "--init_checkpoint, or in official-bert export_saved_model --labels"
            )
        return self.labels

    def objective(self, model: keras.Model) -> TaskObjective:
        return TaskObjective(model, self.losses, self.weights)

    def losses(self, model: keras.Model, features: dict) -> Tensor:
        """Computes the cross-entropy of each piece's label; undefined for pieces without a label.

        Args:
            model: the model, a function from features to logits, float[B, S, labels].
            features: the encoder features and `label_ids`, int32[B, S].

        Returns:
            float32[B*S].
        """
        return self._losses(model(features), features)

    def _losses(self, logits: Tensor, features: dict):
        logits = ops.reshape(logits, (-1, len(self._known_labels())))
        return cross_entropy(logits, ops.reshape(features["label_ids"], [-1]))

    def weights(self, features: dict) -> Tensor:
        """Returns 1 for the first piece of a word to be tagged, else 0: float32[B*S].

        Args:
            features: the features of a batch, with `label_mask`, int32[B, S].
        """
        return ops.reshape(ops.cast(features["label_mask"], "float32"), [-1])

    def outputs(self, model: keras.Model, features: dict) -> dict:
        """Returns `tags`, int32[B, S], and `loss`, float32[B], the mean over the `loss_weight`
        words of a window.

        With `keeps_logits` there are `logits`, float32[B, S, labels].
        """
        logits = model(features)
        mask = ops.cast(features["label_mask"], "float32")
        losses = ops.reshape(self._losses(logits, features), ops.shape(mask))
        num_words = ops.sum(mask, axis=-1)
        return {
            "tags": ops.argmax(logits, axis=-1),
            "loss": ops.sum(losses * mask, axis=-1) / ops.maximum(num_words, 1.0),
            "loss_weight": num_words,
            **({"logits": ops.cast(logits, "float32")} if self.keeps_logits else {}),
        }

    def calibrate(self, encoded: EncodedWords, outputs: dict[str, np.ndarray]) -> None:
        """Fits the temperature, for the tags of words."""
        self.temperature = temperature.fitted(*_word_logits(encoded, outputs))

    def report(
        self,
        output_dir: str,
        encoded: EncodedWords,
        outputs: dict[str, np.ndarray],
        suffix: str = "",
    ) -> None:
        """Writes reliability.tsv of a calibrated model."""
        if self.temperature:
            temperature.write_reliability(
                output_dir, suffix, *_word_logits(encoded, outputs), self.temperature
            )

    def predictions(self, encoded: EncodedWords, outputs: dict[str, np.ndarray]) -> list[list[str]]:
        """Returns the predicted tags of each sentence of the file.

        Args:
            encoded: the windows of the file.
            outputs: the outputs for every window, with `tags`, the label ids, int[n, S].
        """
        numbers = encoded.select_words(outputs["tags"])
        return predicted_tags(encoded.source.sentences, numbers, self._known_labels())

    def metrics(self, encoded: EncodedWords, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Returns conlleval's scores: `eval_precision`, `eval_recall` and `eval_f1` of all entities
        and of each type.

        `eval_accuracy` compares tags in the scheme of the file, which predictions.conll has, too.
        """
        source = encoded.source
        targets = [[columns[-1] for columns in sentence.columns] for sentence in source.sentences]
        predictions = [
            restore_scheme(tags, source.scheme) for tags in self.predictions(encoded, outputs)
        ]
        scores = entity_scores(targets, predictions)
        metrics = {f"eval_{name}": value for name, value in scores.items()}
        if self.temperature:
            metrics |= temperature.scores(*_word_logits(encoded, outputs), self.temperature)
        return metrics

    def describe_predictions(
        self, encoded: EncodedWords, outputs: dict[str, np.ndarray]
    ) -> Iterator[dict[str, Any]]:
        """Describes the words, the tags and the predicted tags of each sentence.

        A calibrated model also has the probabilities of the predicted tags.

        Args:
            encoded: the windows of the file.
            outputs: the outputs for every window.
        """
        divisors = {}
        logits = np.zeros(0)
        if self.temperature:
            divisors = {"probability": self.temperature, "raw_probability": 1.0}
            logits = encoded.select_words(outputs["logits"])
        first = 0
        predictions = self.predictions(encoded, outputs)
        for sentence, tags in zip(encoded.source.sentences, predictions, strict=True):
            last = first + len(tags)
            record = {
                "line": sentence.line,
                "words": sentence.words,
                "label": sentence.tags,
                "prediction": tags,
            }
            for name, divisor in divisors.items():
                probabilities = calibration.probabilities(logits[first:last] / divisor)
                record[name] = numbers(probabilities.max(axis=-1))
            first = last
            yield record

    def write_predictions(
        self,
        output_dir: str,
        encoded: EncodedWords,
        outputs: dict[str, np.ndarray],
        suffix: str = "",
    ) -> None:
        """Writes predictions.conll: the test file with the predicted tags."""
        path = os.path.join(output_dir, f"predictions{suffix}.conll")
        write_predictions(path, encoded.source, self.predictions(encoded, outputs))
        logging.info("Wrote %s", path)

    def serving_outputs(self, model: keras.Model, features: dict) -> dict:
        """Returns `logits` and `probabilities`, float32[B, S, labels], and `tags`, string[B, S], ""
        at padding.

        Each piece has a tag; the tag of a word is that of its first piece. Logits are divided by
        the temperature.
        """
        logits = tf.cast(model(features), tf.float32)
        if self.temperature:
            logits = logits / self.temperature
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            # LiteRT lacks tf.where for strings.
            "tags": tf.gather(
                tf.constant(["", *self._known_labels()]),
                tf.where(features["input_mask"] > 0, best + 1, 0),
            ),
        }

    def serving_text(self, model: keras.Model, texts: dict, reader: TextReader) -> dict:
        return tag_words(
            model,
            texts["text"],
            reader,
            self._known_labels(),
            pre_tokenized=self.pre_tokenized,
        )

    def settings(self) -> dict[str, Any]:
        settings = TaggingSettings(
            pre_tokenized=self.pre_tokenized,
            temperature=self.temperature or None,
        )
        return settings.to_record()

    @classmethod
    def client(cls, model: ServedModel, settings: TaggingSettings) -> TaggingClient:
        return TaggingClient(model, settings.pre_tokenized)


class TaggingClient(TextClient):
    """A client that asks for a tag for each word of a text, cut into windows as without
    --document_context.
    """

    method = "tag"

    def __init__(self, model: ServedModel, pre_tokenized: bool | None = None):
        """Connects the client.

        Args:
            model: the export.
            pre_tokenized: whether only blanks separate words. Otherwise punctuation and ideographs
                are words of their own. None for a model whose record does not say it: then only
                blanks separate words in an export of text.
        """
        super().__init__(model, ("text",))
        is_unknown = pre_tokenized is None
        self._pre_tokenized = model.reads_text if is_unknown else pre_tokenized
        self._has_warned = not (is_unknown and model.reads_text)

    def _warn_of_running_text(self, requests: Sequence[Texts]):
        """Warns once of a text whose punctuation or whose ideographs should be words of their
        own.
        """
        if self._has_warned:
            return
        text = next((text for (text,) in requests if _is_running_text(text)), None)
        if text is not None:
            self._has_warned = True
            errors.warn(
                "%.60r: blanks separate words in this export of text, so that punctuation is a "
                "part of its word; separate them, or export the model again",
                text,
            )

    def _words(self, text: str) -> list[tuple[str, int, int]]:
        """Returns the words of a text with their offsets."""
        if self._pre_tokenized:
            return [(match.group(), *match.span()) for match in _find_words(text)]
        return split_words(text, self.model.tokenizer.basic_tokenizer)

    def is_cut(self, texts: Texts) -> bool:
        """A text is read in windows, as a whole."""
        return False

    def postprocess(self, texts: Texts, answer: dict) -> list[dict]:
        """Returns the entities of a text: `entity_group` (the type), `word` (the text), `start`
        and `end`.
        """
        return answer["entities"]

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Returns `tags` and `entities` of each text.

        `tags` has for each word the word, its offsets in the text (`start`, `end`) and its `tag`.
        `entities` has for each entity its type (`entity_group`), its text (`word`) and offsets.
        """
        self._warn_of_running_text(requests)
        tagged_texts = self._tag(requests)
        answers = []
        for (text,), words in zip(requests, tagged_texts, strict=True):
            answers.append({"tags": words, "entities": _group(text, words)})
        return answers

    def _tag(self, requests: Sequence[Texts]) -> list[list[dict]]:
        """Returns the words of each text with their tags."""
        if self.model.reads_text:
            return [self.answer(row)["tags"] for row in self.rows(requests)]
        words = [self._words(text) for (text,) in requests]
        sentences = [
            Sentence(number, number, [[word] for word, _, _ in text_words], None)
            for number, text_words in enumerate(words)
        ]
        source = ConllFile("", sentences, IOB2, has_documents=False)
        encoded = encoded_words(source, (), self.model.max_seq_length, self.model.tokenizer)
        tags = iter(())
        if len(encoded):
            tags = iter(encoded.select_words(self.model.run(encoded)["tags"]))
        return [[_tagged(*word, next(tags)) for word in text_words] for text_words in words]

    def answer(self, row: Row) -> dict:
        words = zip(row["words"], row["starts"], row["ends"], row["tags"], strict=True)
        return {
            "tags": [
                _tagged(word.decode(), int(start), int(end), tag)
                for _, (word, start, end, tag) in zip(range(row["num_words"]), words, strict=False)
            ]
        }


def _read_by_extensions(path: str, labelled: bool) -> ConllFile | None:
    """Returns the content of a file that an extension reads; None for other files."""
    sources = (read(path, labelled) for read in catalog.hooks("read_tagged"))
    return next((source for source in sources if source is not None), None)


def _group(text: str, words: Sequence[dict]) -> list[dict]:
    """Returns the entities of a text."""
    entities = []
    for entity in find_entities([word["tag"] for word in words]):
        start = words[entity.first]["start"]
        end = words[entity.last]["end"]
        fields = {"entity_group": entity.type, "word": text[start:end], "start": start, "end": end}
        entities.append(fields)
    return entities


def _word_logits(
    encoded: EncodedWords, outputs: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the logits of the words of a labelled set, float32[words, labels], and the ids of
    their tags.
    """
    targets = encoded.targets.values
    return encoded.select_words(outputs["logits"]), targets[targets > 0] - 1


def _is_running_text(text: str) -> bool:
    """Returns whether a text ends in a word with a full stop, or consists of ideographs without
    a blank.
    """
    has_blank = len(text.split()) > 1
    return bool(_ends_a_sentence(text)) or (
        not has_blank and len(list(find_words(text))) >= _MIN_SENTENCE_IDEOGRAPHS
    )


def split_words(text: str, tokenizer: BasicTokenizer) -> list[tuple[str, int, int]]:
    """Returns the words that a BasicTokenizer makes, as they are written in the text.

    Args:
        text: the text.
        tokenizer: the tokenizer.

    Returns:
        (word, start, end) of each word, with its offsets in the text.
    """
    # Between two letters a character of a word adds no word, a blank one, and a word of one
    # character two.
    widths = {char: len(tokenizer.tokenize(f"a{char}a")) for char in set(text)}
    words, start = [], 0
    for position, char in enumerate([*text, " "]):
        if widths.get(char, 2) == 1:
            continue
        words.append((text[start:position], start, position))
        start = position + 1
        if position < len(text) and widths[char] == 3:
            words.append((char, position, start))
    return [word for word in words if tokenizer.tokenize(word[0])]


def _tagged(word: str, start: int, end: int, tag: bytes) -> dict:
    return {"word": word, "start": start, "end": end, "tag": tag.decode()}
