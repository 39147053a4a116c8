"""Experiments: tables of declarations, expanded into commands of the scripts, run, and tabulated."""
