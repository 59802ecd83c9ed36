"""Measures what a person waits for. `make bench` runs all of it; nothing in here is a test."""
