"""Retraining: splitting the data, training the arms, and the statistics of their gains."""
