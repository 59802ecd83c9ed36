"""`python -m study`: see `cli/study.py`."""

from __future__ import annotations

from cli.study import main

if __name__ == "__main__":
    raise SystemExit(main())
