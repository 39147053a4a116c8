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
                masked, positions, labels = _mask(
                    tokens,
                    max_predictions,
                    vocab_words,
                    rng,
                    whole_word,
                )
                instance = (masked, segment_ids, positions, labels, is_random)
                instances.append(instance)
    rng.shuffle(instances)
    return instances


def _pairs(documents, index, max_seq_length, short_seq_prob, rng):
    document = documents[index]
    room = max_seq_length - 3
    target = rng.randint(2, room) if rng.random() < short_seq_prob else room
    chunk = []
    i = 0
    while i < len(document):
        chunk.append(document[i])
        is_last = i == len(document) - 1
        if is_last or sum(map(len, chunk)) >= target:
            split = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            a = _joined(chunk[:split])
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                b = _random_next(documents, index, target - len(a), rng)
                # The segments that were not used begin the next chunk.
                i -= len(chunk) - split
            else:
                b = _joined(chunk[split:])
            _truncate(a, b, room, rng)
            tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
            segment_ids = [0] * (len(a) + 2) + [1] * (len(b) + 1)
            yield tokens, segment_ids, is_random
            chunk = []
        i += 1


def _random_next(documents, index, wanted, rng):
    """Returns tokens from a place in another document, until there are as many as wanted."""
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    document = documents[other]
    first = rng.randint(0, len(document) - 1)
    tokens = []
    for segment in document[first:]:
        tokens = tokens + segment
        if len(tokens) >= wanted:
            break
    return tokens


def _truncate(a, b, room, rng):
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        longer.pop(0 if rng.random() < 0.5 else -1)


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
    share = round(len(tokens) * 0.15)
    count = min(max_predictions, max(1, share))
    masked = list(tokens)
    labels = {}
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
    positions = sorted(labels)
    return masked, positions, [labels[i] for i in positions]
