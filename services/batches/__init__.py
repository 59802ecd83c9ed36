"""Batches over whole data sets: a plan says what to make of one, and each part is made once."""
