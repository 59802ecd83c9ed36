"""All routes of the lead's pages: called once by `app.py`, before Gradio is mounted at "/".

A GET of /study/{id}/ shows a draft's set-up, and the results of a study that has started. What pages send goes through
`ui.study.posting.add_post` to addresses below /study/api/. Whoever adds pages adds one line here.
"""

from __future__ import annotations

from fastapi import FastAPI

from ui.studio import Studio
from ui.study.exchange_routes import add_exchange_routes
from ui.study.results import add_result_routes
from ui.study.setup_routes import add_set_up_routes


def add_study_routes(app: FastAPI, studio: Studio) -> None:
    """Add the pages below /study/ and what they send."""
    add_result_routes(app, studio)
    add_exchange_routes(app, studio)
    add_set_up_routes(app, studio)
