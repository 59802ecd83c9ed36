"""The pages to curate images: gallery, coverage, map, test sets."""
