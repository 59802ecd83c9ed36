"""Checks of texts and of generated images, with the sentences that report them."""
