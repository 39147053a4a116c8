"""The official metric of every task: pure functions (targets, predictions) -> {name: value} that
need only numpy.
"""
