"""Training for any task: distribution strategies, step and loop, seeds, batches, prediction and
reporting.

The modules receive functions and know no task.
"""
