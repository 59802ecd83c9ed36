"""A lock that lets only one model load at a time.

While transformers and accelerate load a model, they replace functions of torch by their own and restore them
afterwards. If two loads overlap, the replacements remain, and no model can be loaded after that.
"""

from __future__ import annotations

import threading

LOADING = threading.RLock()
"""Hold this lock while a library loads a model. Read the model's files before, as a network drive may never answer."""
