"""Everything that reads text inside a graph, for SavedModels that answer raw text."""
