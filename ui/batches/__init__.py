"""The pages of batches, served at /batches/: the list, a new one, and one while it goes on."""
