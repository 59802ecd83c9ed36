"""Test sets: lists of images with labels, splits and masks. A set has versions; a released version never changes."""
