"""Services for validity studies: drafts, items, life cycle, annotation, results, import and export."""
