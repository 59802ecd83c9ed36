"""`python -m storage`: see `cli/storage.py`."""

from __future__ import annotations

from cli.storage import main

if __name__ == "__main__":
    raise SystemExit(main())
