"""The pages of batches, served at /batches/: the list, a new batch, and one batch at work."""
