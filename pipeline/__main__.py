"""`python -m pipeline`: see `cli/pipeline.py`."""

from __future__ import annotations

from cli.pipeline import main

if __name__ == "__main__":
    raise SystemExit(main())
