"""Recipes that train the embedded models from scratch, with or without a GPU: `python -m demo.train.NAME`."""
