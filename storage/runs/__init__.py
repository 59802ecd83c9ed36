"""Runs, the versions of their values, their test cases, and undo."""
