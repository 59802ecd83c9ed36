"""A lock that lets only one model load at a time. While transformers and accelerate load a model, they replace
functions of torch. If two loads overlapped, the replacements would remain, and no model could be loaded after that.
"""

from __future__ import annotations

import threading

LOADING = threading.RLock()
"""Hold this lock while a library loads a model. Read its files before taking the lock, as a network drive may hang."""
