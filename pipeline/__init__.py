"""Makes test cases. Holds the stages, recipes, methods, models and checks, and the driver that runs them."""
