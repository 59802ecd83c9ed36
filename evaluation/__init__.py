"""Models under test, their predictions on images, and the effect of generated images on these predictions."""
