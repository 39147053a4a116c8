"""The options of the scripts: one file a script, frozen dataclasses whose fields become flags."""
