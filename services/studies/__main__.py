"""`python -m services.studies`: see `cli/studies.py`."""

from __future__ import annotations

from cli.studies import main

if __name__ == "__main__":
    raise SystemExit(main())
