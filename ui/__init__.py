"""The pages. Start at `ui.explore.page`."""

from __future__ import annotations

from ui.gradio_import import import_gradio

import_gradio()  # before any page imports it
