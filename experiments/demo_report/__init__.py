"""The report on the demo's models, measured on scenes that no training has seen."""
