"""Test sets: lists of images with labels, splits and masks, in versions; a released one never changes."""
