"""The generator `exact`: the original's instances in the original's order.

In: documents and one `random.Random`. Out: the instances that the original makes of them. Every draw is made in the
original's order, so the random generator also ends in the same state.
"""

import random
from array import array
from collections.abc import Callable

import numpy as np

from official_bert.data.corpus import masking
from official_bert.data.corpus.documents import Documents
from official_bert.data.corpus.draws import shuffle
from official_bert.data.corpus.instances import Instances, InstanceSettings, InstanceVocabulary
from official_bert.data.corpus.sentence_pairs import sentence_pairs


def create_instances(
    documents: Documents,
    vocabulary: InstanceVocabulary,
    settings: InstanceSettings,
    rng: random.Random,
    on_progress: Callable[[int], None] = lambda documents_done: None,
) -> tuple[Instances, np.ndarray]:
    """Makes `settings.dupe_factor` passes over the documents.

    Args:
        on_progress: called after every document with the number of documents visited so far, over all passes.

    Returns:
        The instances in the order of their creation, and int64[instances]: their indices in the order of the records.

    Raises:
        InputError: max_seq_length is below 5.
    """
    shuffled = list(range(len(documents)))
    shuffle(shuffled, rng.getrandbits)

    def bounds_of(document: int):
        return documents.bounds_of(shuffled[document])

    instances = Instances(documents, vocabulary, settings)
    for visited in range(settings.dupe_factor * len(documents)):
        pairs = sentence_pairs(
            visited % len(documents),
            len(documents),
            bounds_of,
            settings.max_seq_length,
            settings.short_seq_prob,
            rng,
        )
        for pair in pairs:
            a_ids = documents.ids[pair.a_begin : pair.a_end].tolist()
            b_ids = documents.ids[pair.b_begin : pair.b_end].tolist()
            instances.append(pair, *_mask(a_ids, b_ids, vocabulary, settings, rng))
        on_progress(visited + 1)
    order = array("q", range(len(instances)))
    shuffle(order, rng.getrandbits)
    return instances, np.frombuffer(order, np.int64)


def _mask(
    a_ids: list[int],
    b_ids: list[int],
    vocabulary: InstanceVocabulary,
    settings: InstanceSettings,
    rng: random.Random,
) -> tuple[list[int], list[int]]:
    """Draws the masked positions and the input ids that replace their tokens, both in the order of the draws."""
    tokens = [vocabulary.cls_id, *a_ids, vocabulary.sep_id, *b_ids, vocabulary.sep_id]
    count = masking.num_predictions(len(tokens), settings.masked_lm_prob, settings.max_predictions_per_seq)
    candidates = [*range(1, len(a_ids) + 1), *range(len(a_ids) + 2, len(tokens) - 1)]
    if settings.do_whole_word_mask:
        continues = [vocabulary.continues[token] for token in tokens]
        positions = masking.draw_whole_words(candidates, continues, count, rng)
    else:
        positions = masking.draw_positions(candidates, count, rng)
    return positions, masking.replacements(tokens, positions, vocabulary.mask_id, vocabulary.word_ids, rng)
