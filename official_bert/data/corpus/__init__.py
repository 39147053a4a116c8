"""From raw text to pre-training instances: documents, sentence pairs, masking, generators, vocabularies."""
