"""The study lead's pages, rendered by the server at /study: list, set-up, preview, progress, results."""
