"""Simulations of how often the intervals of an evaluation contain the true value: `python -m experiments.coverage`."""
