"""The kernel: the types that travel, errors, settings, images, masks, seeds and progress. Imports no other room."""
