"""Retraining: parting the data, training the arms, and the statistics of what it brought."""
