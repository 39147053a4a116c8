"""What each script is told: one file a script, frozen dataclasses whose fields become flags."""
