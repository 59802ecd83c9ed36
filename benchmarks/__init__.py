"""Measures how long people have to wait. `make bench` runs all measurements. None of them is a test."""
