"""What a script does once its flags are read: one file a script, wiring and no algorithms."""
