"""Scores for the sentences of a text, "a sentence | another one": which of them should a reader
see?

The model reads `[CLS] first [SEP] second [SEP] ...`; the score of a sentence stands at the [SEP]
behind it.
"""

import os
from typing import ClassVar

import numpy as np
import tensorflow as tf
from keras import ops

from official_bert.data.model_inputs import ModelInputs
from official_bert.data.tables import not_empty, read_tsv
from official_bert.io import writing
from official_bert.metrics.classification import spearman
from official_bert.modeling import BertTagger
from official_bert.tasks.base import Task, TaskObjective
from official_bert.tasks.clients import TextClient, numbers


class EncodedTexts:
    """Texts as the model reads them, with the scores of their sentences."""

    def __init__(self, texts, scores, tokenizer, max_seq_length):
        self.scores, self.sep = scores, tokenizer.vocab["[SEP]"]
        self.inputs = ModelInputs(_input(text, tokenizer, max_seq_length) for text in texts)
        self.lengths = self.inputs.lengths

    def ends(self, row):
        """Where the sentences of a text end."""
        return np.flatnonzero(self.inputs.ids[row] == self.sep)

    def features(self, rows, length):
        batch = self.inputs.features(rows, length)
        is_end = batch["input_ids"] == self.sep
        targets = np.zeros(is_end.shape, np.float32)
        targets[is_end] = np.concatenate([self.scores[row] for row in rows])
        return batch | {"targets": targets, "is_end": is_end.astype(np.float32)}


def _input(text, tokenizer, max_seq_length):
    """Ids of a text, and how many of them are of segment 0: all. Each sentence is cut to an
    equal share of the room.
    """
    sentences = text.split("|")
    room = (max_seq_length - 1) // len(sentences) - 1
    ids = [tokenizer.vocab["[CLS]"]]
    for sentence in sentences:
        ids += [*tokenizer.encode(sentence)[:room], tokenizer.vocab["[SEP]"]]
    return ids, len(ids)


class HighlightTask(Task):
    main_metric = "eval_spearman"
    text_inputs: ClassVar = {"text": [None]}

    def read(self, data_files, set_name):
        path = data_files.path(set_name, [f"{set_name}.tsv"])
        return {"": not_empty([_example(row, set_name != "test") for row in read_tsv(path)], path)}

    def encode(self, examples, tokenizer, max_seq_length, set_name):
        return EncodedTexts(*zip(*examples, strict=True), tokenizer, max_seq_length)

    def build_model(self, config, use_one_hot_embeddings):
        return BertTagger(config, 1, use_one_hot_embeddings)

    def objective(self, model):
        """The mean of squared errors at the ends of sentences."""

        def errors(model, features):  # float32[B*S]
            return ops.reshape((_scores(model, features) - features["targets"]) ** 2, [-1])

        return TaskObjective(model, errors, lambda features: ops.reshape(features["is_end"], [-1]))

    def outputs(self, model, features):
        scores, is_end = _scores(model, features), features["is_end"]
        num_sentences = ops.sum(is_end, axis=-1)
        errors = ops.sum((scores - features["targets"]) ** 2 * is_end, axis=-1)
        return {"scores": scores, "loss": errors / num_sentences, "loss_weight": num_sentences}

    def metrics(self, encoded, outputs):
        truth, predictions = (
            np.concatenate(encoded.scores),
            np.concatenate(_split_sentence_scores(encoded, outputs)),
        )
        return {"eval_spearman": spearman(truth, predictions)["spearman"]}

    def write_predictions(self, output_dir, encoded, outputs, suffix=""):
        with writing.replacing(os.path.join(output_dir, f"highlights{suffix}.txt")) as file:
            for scores in _split_sentence_scores(encoded, outputs):
                file.write(" ".join(map(str, scores)) + "\n")

    def serving_outputs(self, model, features):
        """`scores`, float32[B, S]; that of a sentence stands at its [SEP]."""
        return {"scores": _scores(model, features)}

    def serving_text(self, model, texts, reader):
        """`scores`, float32[B, sentences], and `num_sentences`, int32[B]."""
        sentences = tf.strings.split(texts["text"], "|")  # [B, (sentences)]
        room = (reader.max_seq_length - 1) // sentences.row_lengths() - 1  # [B]
        ids = reader.tokenizer.encode(sentences.values)  # [all sentences, (pieces)]
        fits = (
            tf.ragged.range(ids.row_lengths()) < tf.gather(room, sentences.value_rowids())[:, None]
        )
        sep = tf.fill([ids.nrows(), 1], reader.vocab["[SEP]"])
        ids = sentences.with_values(tf.concat([tf.ragged.boolean_mask(ids, fits), sep], axis=1))
        cls = tf.fill([sentences.nrows(), 1], reader.vocab["[CLS]"])
        ids = tf.concat([cls, ids.merge_dims(1, 2)], axis=1).to_tensor()  # [B, S]
        features = {
            "input_ids": ids,
            "input_mask": tf.cast(ids != reader.vocab["[PAD]"], tf.int32),
            "segment_ids": tf.zeros_like(ids),
        }
        scores = tf.ragged.boolean_mask(_scores(model, features), ids == reader.vocab["[SEP]"])
        num_sentences = tf.cast(scores.row_lengths(), tf.int32)
        return {"scores": scores.to_tensor(), "num_sentences": num_sentences}

    @classmethod
    def client(cls, model, settings):
        return HighlightClient(model, ["text"])


class HighlightClient(TextClient):
    """Asks for the scores of the sentences of a text."""

    def is_cut(self, texts):
        lengths = [
            len(_input(texts[0], self.model.tokenizer, most)[0])
            for most in (self.model.max_seq_length, 10**6)
        ]
        return lengths[0] < lengths[1]

    def answers(self, requests):
        if self.model.reads_text:
            return super().answers(requests)
        texts = [text for (text,) in requests]
        encoded = EncodedTexts(
            texts, [()] * len(texts), self.model.tokenizer, self.model.max_seq_length
        )
        scores = self.model.run(encoded.inputs)["scores"]
        return [{"scores": numbers(scores[row][encoded.ends(row)])} for row in range(len(texts))]

    def answer(self, row):
        return {"scores": numbers(row["scores"][: row["num_sentences"]])}


def _scores(model, features):
    return ops.sigmoid(ops.cast(model(features), "float32"))[..., 0]


def _split_sentence_scores(encoded, outputs):
    """The scores of the sentences of each text, from those of all tokens."""
    return [scores[encoded.ends(row)] for row, scores in enumerate(outputs["scores"])]


def _example(row, is_labelled):
    """A text, and the scores of its sentences; what is wrong in a row is named with its line."""
    text = row.field(0, "the text")
    num_sentences = len(text.split("|"))
    if not is_labelled:
        return text, np.zeros(num_sentences, np.float32)
    scores = row.field(1, "the scores").split(" ")
    if len(scores) != num_sentences:
        raise row.error(
            f"has {len(scores)} scores for {num_sentences} sentences; give one for each"
        )
    return text, np.float32(scores)
