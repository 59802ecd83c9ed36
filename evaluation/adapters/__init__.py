"""Adapters with one interface, one for each kind of model under test."""
