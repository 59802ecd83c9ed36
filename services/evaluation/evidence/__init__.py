"""Evidence bundles: one zip with a test set, its studies, its evaluations, and a script that recomputes all figures."""
