"""A plain implementation, on strings, of the original's rules for instances; the tests of the
fast generator use it.
"""


def plain_instances(
    documents,
    max_seq_length,
    dupe_factor,
    short_seq_prob,
    max_predictions,
    vocab_words,
    rng,
    whole_word,
):
    """Returns (tokens, segment ids, positions, labels, is random next) of every instance, in
    record order.
    """
    documents = list(documents)
    rng.shuffle(documents)
    instances = []
    for _ in range(dupe_factor):
        for index in range(len(documents)):
            for tokens, segment_ids, is_random in _pairs(
                documents,
                index,
                max_seq_length,
                short_seq_prob,
                rng,
            ):
                masked = _mask(tokens, max_predictions, vocab_words, rng, whole_word)
                instances.append((masked[0], segment_ids, masked[1], masked[2], is_random))
    rng.shuffle(instances)
    return instances


def _pairs(documents, index, max_seq_length, short_seq_prob, rng):
    document, room = documents[index], max_seq_length - 3
    target = rng.randint(2, room) if rng.random() < short_seq_prob else room
    chunk, i = [], 0
    while i < len(document):
        chunk.append(document[i])
        if i == len(document) - 1 or sum(map(len, chunk)) >= target:
            split = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            a, b = _joined(chunk[:split]), []
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                wanted = target - len(a)
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != index:
                        break
                for segment in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
                    b = b + segment
                    if len(b) >= wanted:
                        break
                i -= len(chunk) - split
            else:
                b = _joined(chunk[split:])
            while len(a) + len(b) > room:
                longer = a if len(a) > len(b) else b
                longer.pop(0 if rng.random() < 0.5 else -1)
            yield (
                ["[CLS]", *a, "[SEP]", *b, "[SEP]"],
                [0] * (len(a) + 2) + [1] * (len(b) + 1),
                is_random,
            )
            chunk = []
        i += 1


def _joined(segments):
    return [token for segment in segments for token in segment]


def _mask(tokens, max_predictions, vocab_words, rng, whole_word):
    sets = []
    for i, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if whole_word and sets and token.startswith("##"):
            sets[-1].append(i)
        else:
            sets.append([i])
    rng.shuffle(sets)
    count = min(max_predictions, max(1, round(len(tokens) * 0.15)))
    masked, labels = list(tokens), {}
    for indices in sets:
        if len(labels) >= count:
            break
        if len(labels) + len(indices) > count:
            continue
        for i in indices:
            if rng.random() < 0.8:
                masked[i] = "[MASK]"
            elif rng.random() >= 0.5:
                masked[i] = vocab_words[rng.randint(0, len(vocab_words) - 1)]
            labels[i] = tokens[i]
    return masked, sorted(labels), [labels[i] for i in sorted(labels)]
