"""Profiles: a TOML file each, beside the code that reads and validates them."""
