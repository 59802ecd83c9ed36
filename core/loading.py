"""The lock under which libraries load models.

While transformers and accelerate load a model they put functions of their own in the place of functions of torch, and
put back what they found. Two loads that overlap put back each other's, and no model can be loaded after that.
"""

from __future__ import annotations

import threading

LOADING = threading.RLock()
"""Held while a library loads a model. Its files should have been read before: a drive may never answer."""
