"""Test sets and their versions."""
