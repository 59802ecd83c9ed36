"""Retraining a model under test: planned, run in the background, and reported."""
