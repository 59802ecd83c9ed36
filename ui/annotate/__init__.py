"""The annotators' page: an application of its own at /annotate, which knows workers only and nothing of the studio."""

from __future__ import annotations

from ui.annotate.application import annotate_application

__all__ = ["annotate_application"]
