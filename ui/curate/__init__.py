"""The pages of the curator: images, coverage, map, test sets."""
