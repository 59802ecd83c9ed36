"""Curation of the workspace's images: browsing, reviewing and importing."""
