"""What the page shows: pure functions from values to markup. `markup` escapes, `parts` are the small pieces."""
