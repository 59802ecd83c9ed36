"""Retraining: split the data, train a model on several data sets (arms), and compare their gains."""
