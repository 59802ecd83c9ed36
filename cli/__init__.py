"""The command lines: each `python -m PACKAGE` turns its arguments into calls of other packages, and prints."""
