"""Simulations of how often the intervals of an evaluation hold the truth: `python -m experiments.coverage`."""
