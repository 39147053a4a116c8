"""Strategies, the step and its loop, seeds, batches, prediction and reporting: handed functions, it knows no task."""
