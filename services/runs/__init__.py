"""Runs of the explore page: their life, state, edits, execution, and files."""
