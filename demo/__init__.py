"""The drawn world: synthetic scenes with exact ground truth. Also the demo's models and their training programs."""
