"""Evaluation of models under test: prediction jobs, figures, control sets, and the images behind figures."""
