"""Everything that reads text inside a graph, for SavedModels that accept raw text."""
