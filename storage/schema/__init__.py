"""The tables of a workspace, and the steps that create them."""
