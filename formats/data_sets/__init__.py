"""Whole published data sets, read where they lie: their items by stable keys, and each image when its turn comes."""
