"""All routes of the lead's pages: called once by `app.py`, before Gradio is mounted at "/".

A GET of /study/{id}/ shows a draft's set-up, and of a study that has started `ui.study.results.results_page(studio,
study, signed_in=...)`. Whoever adds pages adds one line to `add_study_routes`. What pages send goes through
`ui.study.posting.add_post` to addresses below /study/api/.
"""

from __future__ import annotations

from fastapi import FastAPI, Request

from ui.studio import Studio


def add_study_routes(app: FastAPI, studio: Studio) -> None:
    """Add the pages below /study/ and what they send."""


def signed_in(request: Request) -> bool:
    """Whether the lead has signed in, so that pages show a way out: the guard sets `scope["state"]["signed_in"]`."""
    return bool(getattr(request.state, "signed_in", False))
