"""Runs as files: a folder with `run.json`, and images that carry their whole run."""
