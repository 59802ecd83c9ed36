"""Test sets as files: written for the libraries that load them, and read back. No database, no page."""
