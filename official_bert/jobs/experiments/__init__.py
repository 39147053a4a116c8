"""Experiments: from a declaration to the command lines that make its table, their runs, the table and its plot."""
