"""Curating: images of the workspace are looked through, decided about, and brought in."""
