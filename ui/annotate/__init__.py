"""The annotators' page: an application of its own at /annotate, which knows workers only and nothing of the studio."""
