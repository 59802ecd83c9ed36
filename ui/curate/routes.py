"""Routes of all pages of Curate."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import RedirectResponse, Response

from services.commands import Commands
from services.curation.gallery import Gallery
from services.curation.imports import ImportService
from services.curation.map import ImageMap
from services.curation.meaning import Meaning
from services.test_sets.services import TestSetServices
from ui.curate.coverage import add_coverage
from ui.curate.gallery import add_gallery
from ui.curate.imports import add_imports
from ui.curate.map import add_map
from ui.curate.sets import add_test_sets


def add_curate_routes(
    app: FastAPI,
    commands: Commands,
    gallery: Gallery,
    test_sets: TestSetServices,
    imports: ImportService,
    image_map: ImageMap,
    meaning: Meaning,
) -> None:
    """Add the pages below /curate/, their data and their actions."""

    @app.get("/curate", include_in_schema=False)
    def to_gallery() -> Response:
        return RedirectResponse("/curate/", status_code=308)

    add_gallery(app, commands, gallery)
    add_coverage(app, commands, gallery)
    add_test_sets(app, commands, test_sets)
    add_imports(app, commands, imports)
    add_map(app, commands, gallery, image_map, meaning)
