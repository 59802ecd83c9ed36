"""Validity studies without a page: drafts, their items, the life of a study, annotating, results, files in and out."""
