"""The column of filters beside the gallery: each value with how many images it would show, and the checks with sliders.

A press on a value is a link to the view with it, so that it works in a tab of its own and is read by the browser's own
means; the script of the page follows it without loading the page anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from core.catalogue import STANDINGS, Bar, Between, CatalogueFilter, Facet, Order, ScoreBand, ScoreCounts
from evaluation.validity_score import FEWEST
from pipeline.checks.wording import WORDS
from services.curation.gallery import Totals
from services.curation.views import CHECK_OUTCOMES, NONE, View, address, band_text
from services.evaluation.scoring import agreement_words
from storage.curation.scores import ScoreRun
from storage.curation.selection import UNREAD
from ui.evaluate.words import evaluate_address
from ui.explore.parts import button, icon, short_model
from ui.markup import Child, Html, el

SHOWN = 8
"""Values of a facet that stand in sight; the rest is behind a press."""
LEAST, LARGEST = -1000.0, 1000.0
"""The ends of a slider that is open to this side, as `Between` has them."""
TITLES: Mapping[Facet, str] = {
    "review": "Review",
    "class": "Class",
    "edit type": "Edit type",
    "weather": "Weather",
    "time of day": "Time of day",
    "study": "Study",
    "tag": "Tags",
    "batch": "Batch",
    "import": "Import",
    "split": "Split",
    "kind": "Task",
    "profile": "Profile",
    "recipe": "Recipe",
    "method": "Method",
    "edits": "Number of edits",
}
"""The facets in the order in which they stand, with their words."""
_RARE: frozenset[Facet] = frozenset({"kind", "profile", "recipe", "method", "edits"})
"""Not in sight where all images agree."""
_STANDING_WORDS = {"newly wrong": "newly wrong", "wrong": "wrong before too", UNREAD: "not asked yet"}
ORDERS: tuple[tuple[str, Order], ...] = (
    ("newest first", Order()),
    ("oldest first", Order("oldest")),
    ("source by source", Order("source")),
    ("most to learn first", Order("information")),
    ("last reviewed first", Order("reviewed", falling=True)),
)
"""Orders that there always are, beside those by a check."""


def filter_column(view: View, totals: Totals) -> Html:
    """All filters of a view."""
    facets = [_facet(view, name, totals.facets.get(name, {})) for name in TITLES]
    models = [_model(view, name, held) for name, held in totals.models.items()]
    checks = [_check(view, name, held, totals.histograms.get(name)) for name, held in totals.checks.items()]
    if totals.scores is not None and totals.score_run is not None:
        score: Html | None = _score(view, totals.scores, totals.score_run)
    else:
        score = _no_score() if totals.checks else None
    return el(
        "div",
        _used(view),
        facets[:3],
        models,
        _group("Checks", checks) if checks else None,
        score,
        facets[3:],
        el("a", "Evaluate a model on these", href=evaluate_address(view=view.text), class_="small", id="to-evaluate")
        if view.is_filter
        else None,
        id="filters",
        class_="filters",
    )


def order_choice(view: View, totals: Totals) -> Html:
    """In which order images stand: a select whose values are those of the address."""
    known = [*ORDERS]
    if totals.score_run is not None:
        title = "validity score"
        known += [(f"{title}: low first", Order("score")), (f"{title}: high first", Order("score", falling=True))]
    for check in totals.checks:
        title = _check_title(check)
        known += [(f"{title}: low first", Order("check", check)), (f"{title}: high first", Order("check", check, True))]
    if not any(order == view.order for _, order in known):
        known.append((view.order.check or view.order.sort, view.order))
    chosen = None if view.by_meaning else view.order
    options = [el("option", words, value=View(order=order).text, selected=order == chosen) for words, order in known]
    options.append(el("option", "near-duplicates, group by group", value="alike=1", selected=view.alike))
    if view.like or view.near:
        options.insert(0, el("option", "most alike first", value="", selected=True))
    return el("select", options, id="order", aria_label="Order", disabled=bool(view.like or view.near))


def _used(view: View) -> Html | None:
    """What the view says that no chip below shows, each with a way out of it."""
    wanted = view.wanted
    said: list[tuple[str, View]] = []
    if wanted.within is not None:
        words = "one image" if len(wanted.within) == 1 else f"{len(wanted.within):,} images of a list"
        said.append((words, _with(view, replace(wanted, within=None))))
    if wanted.source:
        said.append((f"one source: {wanted.source[:8]}", _with(view, replace(wanted, source=""))))
    if wanted.run:
        said.append((f"one run: {wanted.run}", _with(view, replace(wanted, run=""))))
    for value in wanted.facets.get("batch", ()):
        if value:  # who comes from its page sees at once that this is all
            said.append((f"one batch: {value}", _toggled(view, "batch", value, "facets")))
    if wanted.edited:
        said.append((f"edits: {wanted.edited}", _with(view, replace(wanted, edited=""))))
    if wanted.text:
        said.append((f"captions: {wanted.text}", _with(view, replace(wanted, text=""))))
    if view.near:
        said.append((f"like image {view.near}", replace(view, near=0)))
    if view.like:
        said.append((f"shows: {view.like}", replace(view, like="")))
    if view.alike:
        said.append(("near-duplicates, group by group", replace(view, alike=False)))
    if view.region:
        said.append(("a part of the map", replace(view, region=())))
    for name, values in wanted.facets.items():
        if "" in values:
            said.append((f"no {name}", _toggled(view, name, "", "facets")))
    for name, values in wanted.without.items():
        for value in values:
            said.append((f"not {name}: {value}", _toggled(view, name, value, "without")))
    for one in wanted.between:
        said.append((_range_words(one), view.without_range(one.check)))
    for band in wanted.scores:
        said.append((_band_words(band), _with_band(view, band)))
    if not said and view.text == "":
        return None
    links: list[Child] = [
        el(
            "a",
            words,
            icon("cross"),
            href=address(without),
            class_="chip on used",
            title="Take this out of the filter",
            data_view=without.text,
        )
        for words, without in said
    ]
    links.append(el("a", "Clear all", href=address(), class_="small clear", data_view="", id="clear-filter"))
    return el("div", links, class_="chips")


def _facet(view: View, name: Facet, held: Mapping[str, int]) -> Html | None:
    chosen = {*view.wanted.facets.get(name, ()), *view.wanted.without.get(name, ())} - {""}
    values = [*sorted(chosen), *(value for value, number in held.items() if number and value not in chosen)]
    if not values or (name in _RARE and len(values) < 2 and not chosen):
        return None
    chips = [_chip(view, name, value, held.get(value, 0)) for value in values]
    if len(chips) <= SHOWN + 1:
        return _group(TITLES[name], el("div", chips, class_="chips"))
    seen = [chip for value, chip in zip(values, chips, strict=True) if value in chosen or value in values[:SHOWN]]
    rest = [chip for value, chip in zip(values, chips, strict=True) if not (value in chosen or value in values[:SHOWN])]
    find = el("input", type="text", placeholder="find", aria_label=f"Find in {TITLES[name]}", data_find=True)
    more = el(
        "details",
        el("summary", f"{len(rest)} more"),
        find,
        el("div", rest, class_="chips scrolled"),
        class_="more-values",
        id=f"more-{name.replace(' ', '-')}",
    )
    return _group(TITLES[name], el("div", seen, class_="chips"), more)


def _chip(view: View, name: Facet, value: str, number: int) -> Html:
    without = value in view.wanted.without.get(name, ())
    on = value in view.wanted.facets.get(name, ()) or without
    then = _toggled(view, name, value, "without" if without else "facets")
    other = _toggled(view, name, value, "without") if not on else None
    return el(
        "a",
        el("s", value) if without else el("span", value),
        " ",
        el("small", f"{number:,}"),
        href=address(then),
        class_="chip on" if on else "chip" if number else "chip none",
        aria_pressed="true" if on else "false",
        role="button",
        title=None if on else "With Shift: everything but this",
        data_view=then.text,
        data_other=other.text if other is not None else None,
        data_key=f"{name}:{value}",
    )


def _model(view: View, model: str, held: Mapping[str, int]) -> Html:
    chosen = view.wanted.models.get(model, ())
    chips = []
    for standing in (*STANDINGS, UNREAD):
        number = held.get(standing)
        if not number and standing not in chosen:
            continue
        values = tuple(one for one in chosen if one != standing) if standing in chosen else (*chosen, standing)
        models = {**view.wanted.models, model: values}
        then = _with(view, replace(view.wanted, models={name: some for name, some in models.items() if some}))
        chips.append(
            el(
                "a",
                el("span", _STANDING_WORDS.get(standing, standing)),
                " ",
                el("small", f"{number:,}") if number is not None else None,
                href=address(then),
                class_="chip on" if standing in chosen else "chip",
                aria_pressed="true" if standing in chosen else "false",
                role="button",
                data_view=then.text,
                data_key=f"model:{model}:{standing}",
            )
        )
    title = ["Model under test ", el("small", short_model(model, {}), class_="mut", title=model)]
    return _group(title, el("div", chips, class_="chips"))


def _check(view: View, check: str, held: Mapping[str, int], bars: tuple[Bar, ...] | None) -> Html:
    """A check: what it found, and a slider over how its figures are spread, once it is open."""
    chosen = view.wanted.checks.get(check, ())
    between = next((one for one in view.wanted.between if one.check == check), None)
    chips = []
    for outcome in CHECK_OUTCOMES:
        if not held.get(outcome) and outcome not in chosen:
            continue
        values = tuple(one for one in chosen if one != outcome) if outcome in chosen else (*chosen, outcome)
        checks = {**view.wanted.checks, check: values}
        then = _with(view, replace(view.wanted, checks={name: some for name, some in checks.items() if some}))
        chips.append(
            el(
                "a",
                el("span", outcome),
                " ",
                el("small", f"{held.get(outcome, 0):,}"),
                href=address(then),
                class_="chip on" if outcome in chosen else "chip",
                aria_pressed="true" if outcome in chosen else "false",
                role="button",
                data_view=then.text,
                data_key=f"check:{check}:{outcome}",
            )
        )
    failed = held.get("failed", 0)
    summary = el(
        "summary",
        el("span", _check_title(check), title=check),
        el("small", f"{failed:,} failed" if failed else "", class_="mut"),
    )
    used = bool(chosen) or between is not None
    return el(
        "details",
        summary,
        el("div", chips, class_="chips"),
        _histogram(check, bars, between) if bars is not None else el("p", "…", class_="mut small waits"),
        class_="check used" if used else "check",
        id=f"check-{_slug(check)}",
        data_check=check,
        open=used or bars is not None,
    )


def _histogram(check: str, bars: tuple[Bar, ...], between: Between | None) -> Html:
    """How the figures of a check are spread, with two handles: what lies between them is shown."""
    ends = None if between is None else (between.low, between.high)
    return _spread(_check_title(check), bars, ends, data_range=check)


def _spread(title: str, bars: tuple[Bar, ...], ends: tuple[float, float] | None, **data: str) -> Html:
    """A histogram of figures with two handles; `ends` is the range that is chosen, None for all."""
    if not bars:
        return el("p", "No image has a figure.", class_="mut small")
    low, high = bars[0].low, bars[-1].high
    steps = max(1, round((high - low) / 0.02))
    most = max(bar.entries for bar in bars)
    chosen = (max(low, ends[0]), min(high, ends[1])) if ends is not None else (low, high)
    columns = []
    for bar in bars:
        x, tall = 100 * round((bar.low - low) / 0.02) / steps, max(2.0, 38 * bar.entries / most)
        inside = chosen[0] - 1e-9 <= bar.low and bar.high <= chosen[1] + 1e-9
        columns.append(
            el(
                "rect",
                el("title", f"{bar.low:.2f} to {bar.high:.2f}: {bar.entries:,}"),
                x=f"{x:.2f}",
                y=f"{40 - tall:.2f}",
                width=f"{max(0.6, 100 / steps - 0.4):.2f}",
                height=f"{tall:.2f}",
                class_="in" if inside else None,
            )
        )
    drawing = el("svg", columns, viewBox="0 0 100 40", preserveAspectRatio="none", class_="bars", aria_hidden="true")
    handles = [
        el(
            "input",
            type="range",
            min=f"{low:.2f}",
            max=f"{high:.2f}",
            step="0.02",
            value=f"{value:.2f}",
            aria_label=f"{title}: {words}",
            data_end=end,
        )
        for value, end, words in ((chosen[0], "low", "from"), (chosen[1], "high", "to"))
    ]
    words = f"{chosen[0]:.2f} to {chosen[1]:.2f}" if ends is not None else f"all: {low:.2f} to {high:.2f}"
    return el(
        "div",
        drawing,
        el("div", handles, class_="handles"),
        el("p", words, class_="mut small range-words"),
        class_="histogram",
        **data,
    )


def _score(view: View, counts: ScoreCounts, run: ScoreRun) -> Html:
    """The score of validity: a chip for each side of its threshold, how it is spread, and what it is."""
    half = run.agreement.threshold
    numbers = {ScoreBand(half): counts.at_least, ScoreBand(None, half): counts.below, None: counts.not_scored}
    chips = [
        _score_chip(view, band, number) for band, number in numbers.items() if number or band in view.wanted.scores
    ]
    bands = [band for band in view.wanted.scores if band is not None]
    lows = [LEAST if band.low is None else band.low for band in bands]
    highs = [LARGEST if band.high is None else band.high for band in bands]
    ends = (min(lows), max(highs)) if bands else None  # of several all that they span
    return _group(
        "Validity score",
        el("div", chips, class_="chips"),
        _spread("Validity score", counts.bars, ends, data_score="1"),
        el("p", _score_words(run), class_="mut small", id="score-words"),
        button("Score again", "", "s", id="score-images", title="Learn from all votes that there are by now"),
    )


def _no_score() -> Html:
    words = (
        f"Once people have judged {FEWEST} valid and {FEWEST} invalid images in studies, the checks can foretell how "
        "likely they find each of the others valid."
    )
    return el(
        "details",
        el("summary", "Validity score: none yet"),
        el("p", words, class_="mut small"),
        button("Score images", "", "s", id="score-images"),
        class_="more-values",
        id="no-score",
    )


def _score_words(run: ScoreRun) -> str:
    """What the scores are and how far they can be believed, for who sees them for the first time."""
    names = [f"“{name}”" for name in run.studies.values()]
    studies = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return (
        f"How likely people find an image valid, as its checks foretell it: learnt from the votes of {studies} on "
        f"{run.created:%d %B %Y}. {agreement_words(run.agreement)}"
    )


def _score_chip(view: View, band: ScoreBand | None, number: int) -> Html:
    on = band in view.wanted.scores
    then = _with_band(view, band)
    return el(
        "a",
        el("span", _band_words(band, "")),
        " ",
        el("small", f"{number:,}"),
        href=address(then),
        class_="chip on" if on else "chip",
        aria_pressed="true" if on else "false",
        role="button",
        data_view=then.text,
        data_key=f"score:{band_text(band) if band is not None else NONE}",
    )


def _with_band(view: View, band: ScoreBand | None) -> View:
    """The view with a band of scores put in, or taken out where it is in."""
    held = view.wanted.scores
    bands = tuple(one for one in held if one != band) if band in held else (*held, band)
    return _with(view, replace(view.wanted, scores=bands))


def _band_words(band: ScoreBand | None, begin: str = "validity score ") -> str:
    if band is None:
        return "not scored"
    if band.low is None and band.high is None:
        return "scored"
    if band.high is None:
        return f"{begin}at least {band.low:.2f}"
    return f"{begin}below {band.high:.2f}" if band.low is None else f"{begin}{band.low:.2f} to {band.high:.2f}"


def _group(title: Child, *content: Child) -> Html:
    return el("section", el("h3", title), content, class_="group")


def _with(view: View, wanted: CatalogueFilter) -> View:
    return replace(view, wanted=wanted)


def _toggled(view: View, name: Facet, value: str, how: Literal["facets", "without"]) -> View:
    """The view with a value of a facet put in, or taken out where it is in."""
    held = view.wanted.facets if how == "facets" else view.wanted.without
    chosen = held.get(name, ())
    values = tuple(one for one in chosen if one != value) if value in chosen else (*chosen, value)
    changed = {facet: some for facet, some in {**held, name: values}.items() if some}
    if how == "facets":
        return _with(view, replace(view.wanted, facets=changed))
    return _with(view, replace(view.wanted, without=changed))


def _range_words(one: Between) -> str:
    title, low, high = _check_title(one.check), f"{one.low:.2f}", f"{one.high:.2f}"
    if one.low <= LEAST:
        return f"{title} up to {high}"
    return f"{title} from {low}" if one.high >= LARGEST else f"{title} {low} to {high}"


def _check_title(check: str) -> str:
    return WORDS[check].title if check in WORDS else check


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in text)
