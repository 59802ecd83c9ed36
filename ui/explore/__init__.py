"""The page Explore: pure functions from values to markup. `markup` escapes, `parts` are the small pieces."""
