"""Models under test, what they predict, and what retraining brought."""
