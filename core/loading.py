"""The lock under which libraries load models.

While transformers and accelerate load a model, they replace functions of torch by their own and restore them
afterwards. Two loads that overlap restore each other's replacements, and no model can be loaded after that.
"""

from __future__ import annotations

import threading

LOADING = threading.RLock()
"""Held while a library loads a model. Read its files before taking it: a drive may never answer."""
