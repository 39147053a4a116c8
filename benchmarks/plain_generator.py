#!/usr/bin/env python3
"""Makes pre-training records as the original does: plain Python, one instance after another.

It stands in for the original's script, which is not part of this project, where speed and memory are compared: the
same draws in the same order with plain lists of token strings, the corpus and all instances in memory, and a
tf.train.Example for each record. So its records equal those of `create_pretraining_data.py --generator=exact`, in
content and order.

    python benchmarks/plain_generator.py --input_file=wiki_00.txt --output_file=out.tfrecord --vocab_file=vocab.txt
"""

import argparse
import os
import random
import sys
import unicodedata

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

MAX_WORD_LENGTH = 200
IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


def is_space(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")


def words_of(line: str) -> list[str]:
    """Returns the lower-cased words of a line without accents; a punctuation mark is a word."""
    cleaned = []
    for char in line:
        code = ord(char)
        if code in (0, 0xFFFD) or is_control(char):
            continue
        if is_space(char):
            cleaned.append(" ")
        elif any(low <= code <= high for low, high in IDEOGRAPHS):
            cleaned.append(f" {char} ")
        else:
            cleaned.append(char)
    words = []
    for word in "".join(cleaned).split():
        spaced = []
        for char in unicodedata.normalize("NFD", word.lower()):
            if unicodedata.category(char) != "Mn":
                spaced.append(f" {char} " if is_punctuation(char) else char)
        words.extend("".join(spaced).split())
    return words


def pieces_of(word: str, vocab: dict[str, int]) -> list[str]:
    """Returns the longest WordPieces from the left, or [UNK] if they do not cover the word."""
    if len(word) > MAX_WORD_LENGTH:
        return ["[UNK]"]
    pieces, begin = [], 0
    while begin < len(word):
        end = len(word)
        while end > begin:
            piece = word[begin:end] if begin == 0 else "##" + word[begin:end]
            if piece in vocab:
                break
            end -= 1
        else:
            return ["[UNK]"]
        pieces.append(piece)
        begin = end
    return pieces


def read_documents(path: str, vocab: dict[str, int]) -> list[list[list[str]]]:
    """Returns the documents, each a list of segments, each a list of tokens."""
    documents = [[]]
    with open(path, encoding="utf-8", errors="ignore", newline="\n") as file:
        for line in file:
            line = line.strip()
            if not line:
                documents.append([])
                continue
            tokens = [piece for word in words_of(line) for piece in pieces_of(word, vocab)]
            if tokens:
                documents[-1].append(tokens)
    return [document for document in documents if document]


def truncate(a_tokens: list[str], b_tokens: list[str], longest: int, rng: random.Random):
    while len(a_tokens) + len(b_tokens) > longest:
        tokens = a_tokens if len(a_tokens) > len(b_tokens) else b_tokens
        if rng.random() < 0.5:
            del tokens[0]
        else:
            tokens.pop()


def mask(tokens: list[str], words: list[str], flags, rng: random.Random) -> tuple[list[str], list, list]:
    """Returns the tokens after masking, the positions of the predictions and their labels."""
    candidates = [[i] for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(candidates)
    count = min(flags.max_predictions_per_seq, max(1, round(len(tokens) * flags.masked_lm_prob)))
    output, predictions = list(tokens), []
    for (position,) in candidates:
        if len(predictions) >= count:
            break
        if rng.random() < 0.8:
            output[position] = "[MASK]"
        elif rng.random() >= 0.5:
            output[position] = words[rng.randint(0, len(words) - 1)]
        predictions.append((position, tokens[position]))
    predictions.sort()
    return output, [position for position, _ in predictions], [label for _, label in predictions]


def instances_of(documents: list, index: int, words: list[str], flags, rng: random.Random) -> list[tuple]:
    """Returns the instances of one pass over a document."""
    document, longest = documents[index], flags.max_seq_length - 3
    target = longest
    if rng.random() < flags.short_seq_prob:
        target = rng.randint(2, longest)
    instances, chunk, length, i = [], [], 0, 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a_tokens = [token for segment in chunk[:a_end] for token in segment]
            is_random_next = len(chunk) == 1 or rng.random() < 0.5
            if is_random_next:
                wanted = target - len(a_tokens)
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != index:
                        break
                b_tokens = []
                for segment in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
                    b_tokens.extend(segment)
                    if len(b_tokens) >= wanted:
                        break
                i -= len(chunk) - a_end
            else:
                b_tokens = [token for segment in chunk[a_end:] for token in segment]
            truncate(a_tokens, b_tokens, longest, rng)
            tokens = ["[CLS]", *a_tokens, "[SEP]", *b_tokens, "[SEP]"]
            segment_ids = [0] * (len(a_tokens) + 2) + [1] * (len(b_tokens) + 1)
            instances.append((*mask(tokens, words, flags, rng), segment_ids, is_random_next))
            chunk, length = [], 0
        i += 1
    return instances


def write(instances: list[tuple], vocab: dict[str, int], flags):
    def padded(values: list, length: int) -> list:
        return values + [0] * (length - len(values))

    def integers(values) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    seq_length, num_predictions = flags.max_seq_length, flags.max_predictions_per_seq
    with tf.io.TFRecordWriter(flags.output_file) as writer:
        for tokens, positions, labels, segment_ids, is_random_next in instances:
            weights = [1.0] * len(labels) + [0.0] * (num_predictions - len(labels))
            ids = [vocab[token] for token in tokens]
            features = {
                "input_ids": integers(padded(ids, seq_length)),
                "input_mask": integers(padded([1] * len(ids), seq_length)),
                "segment_ids": integers(padded(segment_ids, seq_length)),
                "masked_lm_positions": integers(padded(positions, num_predictions)),
                "masked_lm_ids": integers(padded([vocab[label] for label in labels], num_predictions)),
                "masked_lm_weights": tf.train.Feature(float_list=tf.train.FloatList(value=weights)),
                "next_sentence_labels": integers([int(is_random_next)]),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("input_file", "output_file", "vocab_file"):
        parser.add_argument(f"--{name}", required=True)
    for name, default in (("max_seq_length", 128), ("max_predictions_per_seq", 20), ("dupe_factor", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("masked_lm_prob", 0.15), ("short_seq_prob", 0.1)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--random_seed", type=int, default=12345)
    flags = parser.parse_args()

    with open(flags.vocab_file, encoding="utf-8", newline="\n") as file:
        vocab = {line.strip(): number for number, line in enumerate(file)}
    rng = random.Random(flags.random_seed)
    documents = [document for path in flags.input_file.split(",") for document in read_documents(path, vocab)]
    rng.shuffle(documents)
    words, instances = list(vocab), []
    for _ in range(flags.dupe_factor):
        for index in range(len(documents)):
            instances.extend(instances_of(documents, index, words, flags, rng))
    rng.shuffle(instances)
    write(instances, vocab, flags)
    print(f"Wrote {len(instances)} total instances", file=sys.stderr)


if __name__ == "__main__":
    main()
