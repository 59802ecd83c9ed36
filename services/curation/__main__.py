"""`python -m services.curation`: see `cli/curation.py`."""

from __future__ import annotations

from cli.curation import main

if __name__ == "__main__":
    raise SystemExit(main())
