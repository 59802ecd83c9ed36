"""One file with a test set, its study and its evaluations, and the script that recomputes every figure from it."""
