"""Validity studies: items, workers, assignments and votes."""
