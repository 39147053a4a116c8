"""From text to training records and back: documents, instances, TFRecords, input pipelines."""
