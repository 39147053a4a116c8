"""The runners: one module per script, which connects the parts that the script needs and contains no algorithms."""
