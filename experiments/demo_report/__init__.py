"""The report on the quality of the demo's models, measured on scenes that no training has seen."""
