"""Test sets as files: write them for the libraries that load them, and read them back. No database, no page."""
