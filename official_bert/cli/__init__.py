"""The command line: one table of commands, and absl flags made from their options."""
