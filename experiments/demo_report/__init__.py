"""The report on the embedded models: measured on scenes that no training has seen."""
