"""The annotators' page: an application of its own at /annotate, which knows only workers and nothing of the studio."""
