"""The one importer of tensorflow_text, which the TPU wheel of TensorFlow has no room for."""

from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib


def learn_pieces(
    word_counts: list[tuple[str, int]],
    vocab_size: int,
    reserved_tokens: tuple[str, ...],
    lowest_threshold: int,
    highest_threshold: int,
) -> list[str]:
    """Learns WordPieces top-down: what occurs often enough, long pieces before their parts.

    The learner looks for the threshold of occurrences that gives a vocabulary of the size asked for. It ends up to
    5 % below, further below where the lowest threshold gives no more, and above where the highest gives no fewer.

    Args:
        word_counts: words and how often they occur.
        vocab_size: pieces to aim at, reserved and single characters included.
        reserved_tokens: come first.
        lowest_threshold, highest_threshold: bounds of the search.

    Returns:
        The reserved tokens, the characters in order, then pieces by how often they occur; every character also
        has its "##" piece.
    """
    return wordpiece_tokenizer_learner_lib.learn(
        word_counts,
        vocab_size,
        list(reserved_tokens),
        upper_thresh=highest_threshold,
        lower_thresh=lowest_threshold,
        max_input_tokens=-1,
        max_token_length=max(len(word) for word, _ in word_counts),
        max_unique_chars=len({char for word, _ in word_counts for char in word}),
    )
