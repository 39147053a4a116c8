"""The official metric of every task: pure functions (targets, predictions) -> {name: value} that need only numpy.

Scores are fractions, except those of SQuAD, which are percentages as in its official scripts.
"""
