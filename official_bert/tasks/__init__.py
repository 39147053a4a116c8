"""The tasks that models are trained for: the objective, metrics and files of each task."""
