"""Validity studies without pages: drafts, items, life cycle, annotation, results, import and export."""
