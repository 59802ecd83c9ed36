"""The page Evaluate, at /evaluate/: the errors of a model under test, with intervals, and the images behind them."""
