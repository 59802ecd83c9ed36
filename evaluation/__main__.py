"""`python -m evaluation`: what a test set says of a model under test, without a browser.

Test sets are kept in a workspace, of which this room knows nothing: it only shows the way.
"""

from __future__ import annotations

from importlib import import_module

if __name__ == "__main__":
    raise SystemExit(import_module("services.evaluation.__main__").main())
