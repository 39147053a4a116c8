"""Makes pre-training instances from raw text: documents, sentence pairs, masking, generators, vocabularies."""
