"""The list of studies, the page that names a new one, and the log of events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.stored_studies import LogEntry
from core.studies import Study
from core.words import count_of
from services.studies.templates import TEMPLATES, Template
from ui.frame import page
from ui.markup import Html
from ui.study.frame import STATE_WORDS
from ui.templating import render


def list_page(studies: Sequence[Study], signed_in: bool) -> str:
    """Return the page of all studies, latest first."""
    here, away = ([_line(study) for study in studies if study.archived == archived] for archived in (False, True))
    return page("Studies", render("study/list.html", here=here, away=away, states=STATE_WORDS), signed_in=signed_in)


def _line(study: Study) -> tuple[Study, str, float]:
    """Return a study, facts about it, and the share of its votes that are in."""
    facts = [
        count_of(study.items, "image"),
        f"{study.rules.votes} votes each",
        count_of(study.controls, "control item"),
    ]
    if study.state != "draft":
        facts.append(count_of(study.workers, "annotator") if study.workers else "nobody yet")
    return study, " · ".join(facts), study.votes / study.needed if study.needed else 0.0


def new_page(signed_in: bool) -> str:
    """Return the page to begin a study: it asks for a name and a template."""
    choices = [(template, _shown(template)) for template in TEMPLATES.values()]
    return page("New study", render("study/new.html", choices=choices), signed_in=signed_in)


def _shown(template: Template) -> str:
    """Return in words which texts and pictures a template shows beside the judged image."""
    words = (("source image beside it", template.show_source), ("both captions", template.show_captions))
    return ", ".join(name for name, on in words if on)


def log_page(study: Study, entries: Sequence[LogEntry], limit: int, names: Mapping[str, str] | None = None) -> Html:
    """Return the log, in UTC. With `names` of studies by id it is that of all studies, of sign-ins and of refusals."""
    return render("study/log.html", study=study, entries=entries, limit=limit, names=names)
