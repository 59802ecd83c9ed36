"""The catalogue of images that can be curated: filters, decisions, imports, scores and vectors."""
