"""Make this folder a package, so that pytest ends the fixtures of `conftest.py` after these tests and not after all."""
