"""Runs (one source image walked through the stages), the versions of their values, their test cases, and undo."""
