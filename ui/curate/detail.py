"""One image beside the gallery: its picture and what it was made from, what is known of it, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping

from core.check_words import words_of
from core.image_filter import ImageFilter, Standing
from core.stored_runs import StoredValue
from core.test_sets import SetVersion
from core.types import Check
from core.words import count_of
from services.curation.gallery import Detail, Origin
from services.curation.views import View, gallery_address
from services.runs.words import artifacts_of, edit_words, recipe_title
from ui.curate.sets_words import set_address, version_key
from ui.diff import shortened, word_diff
from ui.explore.checks import OUTCOMES, explained
from ui.explore.parts import (
    Tone,
    acts,
    button,
    differences,
    icon,
    key,
    muted,
    picture,
    pill,
    press,
    seconds,
    short_model,
    small,
)
from ui.markup import Child, Html, el

VERDICTS: Mapping[str, tuple[Tone, str]] = {
    "accepted": ("ok", "check"),
    "rejected": ("bad", "cross"),
    "open": ("", "empty"),
}
STANDING_TONES: Mapping[Standing, Tone] = {"right": "ok", "newly wrong": "bad", "wrong": "warn"}


def detail_panel(detail: Detail) -> Html:
    """All of one image but how it came about, which is asked for when somebody wants it."""
    entry = detail.entry
    return el(
        "div",
        _pictures(detail),
        el(
            "div",
            _head(detail),
            _caption(detail),
            _acts(detail),
            _facts(detail),
            _origin_place(detail),
            _history(detail),
            class_="told",
        ),
        id="detail",
        class_="card detail",
        data_entry=entry.id,
        data_verdict=entry.verdict,
        data_kind=entry.kind,
    )


def no_detail(words: str) -> Html:
    """Where no image is picked."""
    return el("div", muted(words) if words else None, id="detail", class_="card detail none")


def _pictures(detail: Detail) -> Html:
    """The ways to look at it: a tab each, one picture at a time."""
    entry, shown = detail.entry, _ways(detail)
    tabs = [
        press(
            words,
            class_="tab on" if place == 0 else "tab",
            data_way=name,
            aria_pressed="true" if place == 0 else "false",
        )
        for place, (name, words, _) in enumerate(shown)
    ]
    images = [
        picture(
            url,
            entry.image_size,
            alt=_alt(detail) if place == 0 else words,
            data_shows=name,
            hidden=place > 0,
            loading=None if place == 0 else "lazy",
        )
        for place, (name, words, url) in enumerate(shown)
    ]
    return el("figure", images, el("figcaption", tabs, class_="tabs-over"), class_="shown")


def _ways(detail: Detail) -> list[tuple[str, str, str]]:
    """Name, words and address of each picture that there is of an image."""
    entry = detail.entry
    ways = [("result", "Result", f"/images/{entry.image_sha}.png")]
    if entry.source_sha:
        ways.append(("source", "Source", f"/images/{entry.source_sha}.png"))
    if detail.case is not None:
        titles = {artifact.name: artifact.title for artifact in artifacts_of(detail.case)}
        for name, stored in detail.case.artifacts.items():
            ways.append((name.replace(" ", "-"), titles[name], f"/images/{stored.sha}.png"))
    if detail.mask_sha:
        ways.append(("mask", "Mask", f"/masks/{detail.mask_sha}.png"))
    return ways


def _alt(detail: Detail) -> str:
    return detail.entry.counterfactual or ", ".join(detail.entry.classes) or "image"


def _head(detail: Detail) -> Html:
    entry = detail.entry
    tone, sign = VERDICTS[entry.verdict]
    when = f" {entry.reviewed:%H:%M}" if entry.reviewed is not None else ""
    when += f" by {entry.reviewer}" if entry.reviewer else ""
    title = f"{entry.reviewed:%d %B %Y %H:%M} UTC" if entry.reviewed is not None else "Nobody decided yet"
    said = f"{entry.verdict}{when}"
    edits = edit_words(detail.case) if detail.case is not None else ""
    name = " · ".join(part for part in (", ".join(entry.classes) or "no label", edits) if part)
    return el(
        "div",
        el("h2", name),
        pill([icon(sign), el("span", said)], tone, title=title, id="verdict", data_verdict=entry.verdict),
        el("p", entry.reason, class_="small reason") if entry.reason else None,
        class_="head",
    )


def _caption(detail: Detail) -> Html | None:
    entry = detail.entry
    if not entry.counterfactual and not entry.caption:
        return None
    told = (
        differences(shortened(word_diff(entry.caption, entry.counterfactual)))
        if entry.caption
        else entry.counterfactual
    )
    return el("p", told, class_="caption")


def _acts(detail: Detail) -> Html:
    entry = detail.entry
    return acts(
        button([icon("check"), "Accept", key("A")], "", "p" if entry.verdict == "open" else "", data_act="accept"),
        button([icon("cross"), "Reject", key("R")], "", "", data_act="reject"),
        button(["Tag", key("T")], "", "s", data_act="tag"),
        button(["Label", key("L")], "", "s", data_act="label") if entry.kind == "classification" else None,
    )


def _facts(detail: Detail) -> Html:
    entry, rows = detail.entry, list[tuple[str, Child]]()
    if entry.source_sha:
        same = View(ImageFilter(source=entry.source_sha))
        words = f"its {count_of(detail.siblings, 'image')}"
        link = el("a", words, href=gallery_address(same), data_view=same.address)
        rows.append(("source", [entry.run_name or "source", " · ", link]))
    if entry.import_name:
        rows.append(("import", " · ".join(part for part in (entry.import_name, entry.name) if part)))
    rows.append(("checks", [_check(check) for check in entry.checks] or "none"))
    if entry.score is not None:
        title = "How likely people find it valid, as its checks foretell it"
        rows.append(("score", el("span", f"{entry.score:.2f}", title=title, id="score")))
    rows.append(("votes", _votes(detail)))
    rows.append(("models", _models(detail)))
    rows.append(("sets", [_set(version) for version in detail.sets] or "none"))
    rows.append(("tags", [_tag(tag) for tag in entry.tags] or "none"))
    if detail.case is not None:
        lineage = detail.case.lineage
        steps = lineage.settings.steps
        drawn = [
            f"seed {lineage.seed}",
            f"{steps} steps" if steps else "",
            f"{entry.image_size[0]} x {entry.image_size[1]}",
        ]
        rows.append(("drawn", [short_model(lineage.model, {}), " · ", " · ".join(part for part in drawn if part)]))
    made = [f"{entry.created:%d %B %Y}", entry.profile and f"profile {entry.profile}", recipe_title(entry.recipe)]
    rows.append(("made", " · ".join(part for part in made if part)))
    return el("dl", [(el("dt", name), el("dd", told)) for name, told in rows], class_="all-of-it")


def _history(detail: Detail) -> Html | None:
    """Who decided what, and when."""
    if not detail.history:
        return None
    lines = [
        el(
            "li",
            el("b", said.what if said.kind == "review" else f"{said.kind}: {said.what}"),
            f": {said.reason}" if said.reason else None,
            el("span", f" · {said.author or 'nobody named'} · {said.created:%d %B %Y %H:%M} UTC", class_="mut"),
        )
        for said in detail.history
    ]
    return el("details", el("summary", f"History: {len(lines)}"), el("ol", lines), class_="origin")


def _check(check: Check) -> Html:
    tone, sign = OUTCOMES[check.outcome]
    figure = f" {check.value:.2f}" if check.value is not None else ""
    return pill([icon(sign), f"{words_of(check).title}{figure}"], tone, title=explained(check))


def _votes(detail: Detail) -> Child:
    if detail.facts is None or not detail.facts.facts["votes"]:
        return "in no study"
    return [
        pill(
            f"{vote['outcome'] or 'undecided'}, {vote['votes']} votes",
            "ok" if vote["outcome"] == "valid" else "bad" if vote["outcome"] == "invalid" else "",
        )
        for vote in detail.facts.facts["votes"]
    ]


def _models(detail: Detail) -> Child:
    if not detail.entry.standings:
        return "not asked"
    said = detail.facts.facts["predictions"] if detail.facts is not None else {}
    told: list[Child] = []
    for model, standing in detail.entry.standings.items():
        label = said.get(model, {}).get("label", "")
        words = f"{short_model(model, {})}: {standing}" + (f", says {label}" if label else "")
        told.append(pill(words, STANDING_TONES.get(standing, ""), title=model))
    return told


def _set(version: SetVersion) -> Html:
    return el("a", version.words, href=set_address(version.test_set, version=version_key(version)), class_="small")


def _tag(tag: str) -> Html:
    return press(tag, icon("cross"), class_="chip small", data_untag=tag, title="Take this tag off")


def _origin_place(detail: Detail) -> Html | None:
    if detail.case is None:
        return None
    run, case = detail.case.run_id, detail.case.id
    alike = View(near=detail.entry.id)
    links = [
        el("a", "Open in Explore", href=f"/?run={run}&image={case}", class_="btn", id="open-in-explore"),
        el(
            "a",
            "Alike",
            href=gallery_address(alike),
            class_="btn",
            data_view=alike.address,
            title="What looks most like it",
        ),
        el("a", "Save", href=f"/download/{case}.png", class_="btn", download=True, title="A file that carries its run"),
    ]
    place = el("div", "…", id="origin", class_="mut")
    made = el("details", el("summary", "How it was made"), place, class_="origin", data_origin=detail.entry.id)
    return el("div", acts(links), made, class_="onwards")


def origin_part(origin: Origin) -> Html:
    """Stage by stage: who gave its value, what was asked, and what came back."""
    if not origin.values:
        return el("div", "Nothing is known of how it was made.", id="origin", class_="mut")
    return el("div", [_stage(name, held) for name, held in origin.values.items()], id="origin")


def _stage(name: str, held: StoredValue) -> Html:
    trace = held.value.trace
    who = "a person" if trace.author == "person" else short_model(trace.model, {})
    told: list[Child] = [small(who, f" · {seconds(trace.seconds)} · seed {trace.seed}")]
    if trace.prompt:
        told += [el("h4", "Prompt"), el("pre", trace.prompt)]
    if trace.raw_reply:
        told += [el("h4", "Reply"), el("pre", trace.raw_reply)]
    told += [el("p", note, class_="small") for note in trace.notes]
    return el("section", el("h3", name), told)
