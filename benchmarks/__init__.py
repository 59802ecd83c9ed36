"""Measures the times that people wait for. `make bench` runs everything; nothing here is a test."""
