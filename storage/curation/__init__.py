"""The catalogue: all images that people can curate, with filters, decisions, imports, scores and vectors."""
