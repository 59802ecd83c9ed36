"""Models under test: what they see in an image, and how much of it they still see in a generated one."""
