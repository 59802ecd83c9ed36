"""The drawn world: scenes with exact ground truth, the recipes that train the embedded models, and their weights."""
