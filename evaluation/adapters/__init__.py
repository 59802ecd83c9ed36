"""Adapters: one for each kind of model under test, behind one seam."""
