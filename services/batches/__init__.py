"""Whole data sets: a plan says what is made of one, and everything of it is made once."""
