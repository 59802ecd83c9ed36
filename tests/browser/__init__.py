"""A package, so that what `conftest.py` starts for all its files ends with them, and not with all tests."""
