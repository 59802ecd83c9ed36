"""Test sets: lists of images with labels, splits and masks, in versions of which a released one never changes."""
