"""Checks of texts and of generated images, and how each is worded."""
