"""The addresses of a study's pages. Pure."""

from __future__ import annotations

from urllib.parse import quote

from core.studies import Item
from core.study_report import Disagreement


def study_address(study_id: str, end: str = "") -> str:
    """Return the address of a page of a study."""
    return f"/study/{study_id}/{end}"


def worker_address(study_id: str, worker: str) -> str:
    """Return the address of the page with one worker's votes."""
    return study_address(study_id, f"workers/{quote(worker, safe='')}")


def item_address(study_id: str, item: Item) -> str:
    """Return the address of the page of one image."""
    return study_address(study_id, f"items/{quote(item.public, safe='')}")


def decide_address(study_id: str, case: Disagreement) -> str:
    """Return the address of the page where a person decides one question of one image."""
    return study_address(study_id, f"adjudication?item={case.item}&question={case.question}")
