"""`python -m evaluation`: see `cli/evaluation.py`."""

from __future__ import annotations

from cli.evaluation import main

if __name__ == "__main__":
    raise SystemExit(main())
