"""Test sets: lists of images with labels, splits and masks, in versions. A released version never changes."""
