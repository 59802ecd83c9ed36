"""Programs that train the demo's models from scratch, with or without a GPU: `python -m demo.train.NAME`."""
