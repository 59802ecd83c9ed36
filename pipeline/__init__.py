"""The making of test cases: stages, recipes, methods, models, checks, and the driver that runs them."""
