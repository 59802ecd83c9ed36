"""Shared by all packages: types, errors, settings, images, masks, seeds and progress. Imports no other package."""
