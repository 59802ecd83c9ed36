"""The pages of the study lead, rendered here and served at /study: list, set-up, preview, progress, results."""
