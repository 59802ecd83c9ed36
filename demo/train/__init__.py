"""Recipes that train the embedded models from nothing: `python -m demo.train.NAME`. A CPU will do, a GPU is used."""
