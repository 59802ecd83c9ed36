"""`python -m services.test_sets`: see `cli/test_sets.py`."""

from __future__ import annotations

from cli.test_sets import main

if __name__ == "__main__":
    raise SystemExit(main())
