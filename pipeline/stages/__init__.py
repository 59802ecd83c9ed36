"""Text stages, one module each. `base` has their declaration, `asking` their requests."""
