"""Runs a command: `python -m official_bert NAME` is `official-bert NAME`."""

from official_bert.cli.commands import main

if __name__ == "__main__":
    main()
