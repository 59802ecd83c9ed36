"""The page Evaluate, at /evaluate/: where a model under test breaks, how sure that is, and the images behind it."""
