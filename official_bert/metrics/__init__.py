"""The official metric of every task.

Each metric is a pure function (targets, predictions) -> {name: value} that needs only NumPy.
"""
