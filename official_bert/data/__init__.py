"""Makes training records from text and reads them back: documents, instances, TFRecords, input
pipelines.
"""
