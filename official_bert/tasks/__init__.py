"""What models are trained for: objectives, metrics and files of each task."""
