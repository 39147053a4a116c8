"""The skeletons of the runs: `pretrain`, and `fine_tune` with its fine-tuner and searches over
runs.
"""
