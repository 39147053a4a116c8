"""The official metric of every task: pure functions (targets, predictions) -> {name: value}, numpy only.

Scores are fractions, but SQuAD's are percentages, as its official scripts print them.
"""
