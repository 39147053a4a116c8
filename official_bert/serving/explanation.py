"""Explains an answer: how much each word of a text speaks for a label. `Predictor.explain` calls
it.

F is the logit of the label's probability p as it is answered, ln(p / (1 - p)), or the score of a
regression, as a function of the word embeddings x of a request's pieces; position and segment
embeddings, [CLS] and [SEP] stay as they are. The attribution of a word is the sum over its pieces
and over the coordinates of

    gradient_x_input        x * dF/dx
    integrated_gradients    (x - b) * 1/m sum_{k=1..m} dF/dx at b + (k - 1/2)/m (x - b)

where b is the baseline: for each piece the vector of [PAD], or zero. Integrated gradients are
complete: their sum is F(x) - F(b), but for an error that falls as the number m of steps grows.

Sources: Simonyan, Vedaldi and Zisserman (2013), arXiv:1312.6034, for gradients; Shrikumar et al.
(2016), arXiv:1605.01713, for their product with the input; Sundararajan, Taly and Yan (2017),
arXiv:1703.01365.
"""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling.bert import in_place_of_look_ups
from official_bert.options.fine_tuning import WINDOWS
from official_bert.serving.model import Export, InMemoryModel
from official_bert.tasks.clients import Texts
from official_bert.tokenization import find_words
from official_bert.tokenizer_config import joined

INTEGRATED, TIMES_INPUT = "integrated_gradients", "gradient_x_input"
PAD, ZERO = "pad", "zero"
_NO_WORD = -1


def explain(
    model: InMemoryModel | Export,
    columns: Sequence[str],
    batch_size: int,
    texts: Texts,
    answer: Mapping[str, Any],
    label: str | None,
    method: str,
    baseline: str,
    steps: int,
) -> dict:
    """Returns what Predictor.explain does for the texts of a request and the answer of the
    model's client.
    """
    for name, value, known in (
        ("method", method, (INTEGRATED, TIMES_INPUT)),
        ("baseline", baseline, (PAD, ZERO)),
    ):
        if value not in known:
            raise InputError(f"{name}={value!r}: must be one of {', '.join(known)}")
    if not isinstance(steps, numbers.Integral) or steps < 1:
        raise InputError(f"steps={steps!r}: must be a whole number, and at least 1")
    if not isinstance(model, InMemoryModel):
        raise InputError(
            f"{model.path}: is an export, which has no gradients; give the folder of the trained "
            "model"
        )
    task = model.trained.task
    if getattr(task, "long_texts", None):
        raise InputError(
            f"{model.path}: pools the windows of a text (--long_texts={WINDOWS}), which cannot be "
            "explained; give a model that was trained without the flag"
        )
    scores = answer.get("probabilities", {None: answer.get("score")})
    label = max(scores, key=scores.get) if label is None else label
    if label not in scores:
        raise InputError(
            f"label={label!r}: is no label of {model.path}, which has {', '.join(map(str, scores))}"
        )
    index, classifier = list(scores).index(label), model.trained.model
    rivals = [number for number in range(len(scores)) if number != index and "label" in answer]
    words, word_of, features = _encoded(model, columns, texts)

    def at(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns F, float32[B], and dF/dx, float32[B, S, hidden], for word embeddings of that
        shape.
        """
        vectors = tf.constant(points, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            with in_place_of_look_ups(vectors):
                logits = classifier(
                    {
                        name: np.repeat(value, len(points), axis=0)
                        for name, value in features.items()
                    }
                )
            logits = logits / (getattr(task, "temperature", None) or 1.0)
            value = logits[:, index]
            if rivals:
                value -= tf.reduce_logsumexp(tf.gather(logits, rivals, axis=1), axis=1)
        return value.numpy(), tape.gradient(value, vectors).numpy()

    ids = [model.tokenizer.vocab.get("[PAD]", 0), *features["input_ids"][0]]
    b, x = np.split(np.float32(ops.take(classifier.bert.embedding_table, ids, axis=0)), [1])
    shares = np.ones(1) if method == TIMES_INPUT else (np.arange(steps) + 0.5) / steps
    is_of_word, is_zero = word_of != _NO_WORD, method == TIMES_INPUT or baseline == ZERO
    way = np.where(is_of_word[:, None], x if is_zero else x - b, 0)  # from b to x
    batches = np.split(shares[:, None, None], range(batch_size, len(shares), batch_size))
    gradient = sum(
        at(x - (1 - batch) * way)[1].sum(axis=0, dtype=np.float64) for batch in batches
    ) / len(shares)
    of_pieces = (way * gradient).sum(axis=-1)[is_of_word]
    of_words = np.bincount(word_of[is_of_word], of_pieces, len(words))
    before, after = at(np.stack([x - way, x]))[0]
    return {
        "label": label,
        "score": scores[label],
        "words": [
            word | {"attribution": float(value)}
            for word, value in zip(words, of_words, strict=True)
        ],
        "completeness": float(of_pieces.sum() - (after - before)),
    }


def _encoded(
    model: InMemoryModel, columns: Sequence[str], texts: Texts
) -> tuple[list, np.ndarray, dict]:
    """Returns the words of a text or a pair, the index of each piece's word, int64[S], and
    features, int32[1, S].
    """
    words, pieces = [], [[], []]
    for name, text, of_text in zip(columns, texts, pieces, strict=False):
        for found in find_words(text):
            of_text += [(number, len(words)) for number in model.tokenizer.encode(found.group())]
            words.append(
                {"text": name, "word": found.group(), "start": found.start(), "end": found.end()}
            )
    cls, sep = ((model.tokenizer.vocab[piece], _NO_WORD) for piece in ("[CLS]", "[SEP]"))
    row, num_first = joined(*pieces, model.max_seq_length, cls, sep)
    ids, word_of = np.array(row).T
    inputs = (ids, np.ones_like(ids), np.arange(len(ids)) >= num_first)
    return (
        words,
        word_of,
        {name: np.int32([value]) for name, value in zip(ENCODER_INPUTS, inputs, strict=True)},
    )
