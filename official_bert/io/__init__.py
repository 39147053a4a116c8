"""What everything else stands on: errors, files, readers and writers, progress, processes."""
