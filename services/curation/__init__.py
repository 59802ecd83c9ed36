"""Curation of the workspace's images: looking through, deciding, and importing."""
