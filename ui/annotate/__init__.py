"""The annotators' page: a separate application at /annotate, which gives access to nothing else of the studio."""
