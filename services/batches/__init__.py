"""Batches: a plan says which test cases to make of a whole data set, and each test case is made once."""
