"""One file for each command: what the script of that name runs."""
