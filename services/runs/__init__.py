"""Runs of the Explore page: life cycle, state, edits, execution, and files."""
