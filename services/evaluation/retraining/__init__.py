"""Retraining of a model under test: planning, background work and reports."""
