"""The tree of a vocabulary, beside its states by hand."""

from official_bert.graph_text import vocabulary_tree


def test_the_tree_of_a_vocabulary():
    tree = vocabulary_tree.build_tree({"ab": 0, "a": 1, "##b": 2, "": 3, "##": 4})
    # Dead, the two roots, then "a", "ab" and "##b", and "#" and "##" at the start of a word.
    assert tree.ids.tolist() == [-1, -1, -1, 1, 0, 2, -1, 4]
    assert tree.depth == 2
    assert len(tree.keys) == len(tree.targets) == 5
    unit = vocabulary_tree.NUM_CODES
    assert dict(zip(tree.keys.tolist(), tree.targets.tolist(), strict=True))[unit + ord("a")] == 3
