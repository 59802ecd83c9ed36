"""Test sets as files: written for the libraries that people load them with, and read back. No database, no page."""
