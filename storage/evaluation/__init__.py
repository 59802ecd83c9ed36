"""Models under test, their predictions, and the results of retraining."""
