"""The column of filters beside the gallery: values with their numbers of images, and sliders for checks. Each value is
a link, which also works in a new tab and without our scripts. The page's script follows it without a reload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlencode

from core.catalogue import Bar, Order, ScoreCounts
from core.check_words import WORDS
from core.data_files import DataTable
from core.image_filter import CHECK_OUTCOMES, HIGHEST, LOWEST, NONE, SCORE, STANDINGS, UNREAD, Between, Facet, ScoreBand
from core.validity_score import FEWEST, ScoreRun
from core.words import and_list
from services.curation.gallery import Totals
from services.curation.views import View
from services.evaluation.scoring import agreement_words
from ui.evaluate.words import evaluate_address
from ui.explore.parts import short_model, small
from ui.markup import Html
from ui.templating import render

SHOWN = 8
"""Number of values of a facet that are listed at first. A button shows the rest."""
TITLES: Mapping[Facet, str] = DataTable(__file__, str, "titles")
_RARE: frozenset[Facet] = frozenset({"kind", "profile", "recipe", "method", "start", "edits"})
"""Facets that are hidden if all images have the same value."""
_USED = DataTable(__file__, str, "used")
"""Text of a filter, such as `run`, in the list of applied filters. The value of the filter replaces "{}"."""
_STANDING_WORDS = {"newly wrong": "newly wrong", "wrong": "wrong before too", UNREAD: "not asked yet"}
Chip = tuple[tuple[str, str], str, int | None, str]
"""A filter value: (name, value) in the address, text, number of its images or None, and a unique key."""
ORDERS: tuple[tuple[str, Order], ...] = (
    ("newest first", Order()),
    ("oldest first", Order("oldest")),
    ("source by source", Order("source")),
    ("most to learn first", Order("information")),
    ("last reviewed first", Order("reviewed", falling=True)),
)
"""Orders of images that are always offered. One order is added for each check with figures."""


def filter_column(view: View, totals: Totals) -> Html:
    """Return the column of filters. The filters that `view` applies are marked."""
    names = _model_names(totals.models)
    models = [(model, names[model], _model_chips(view, model, counts)) for model, counts in totals.models.items()]
    checks = [_check(view, name, counts, totals.histograms.get(name)) for name, counts in totals.checks.items()]
    runs, kinds = totals.score_runs, totals.facets.get("kind", {})
    scored = {run.task for run in runs}
    return render(
        "curate/filters.html",
        view=view,
        totals=totals,
        slug=_slug,
        fewest=FEWEST,
        evaluate_address=evaluate_address(filter=view.filter.address),
        used=[(words, view.toggled(*part)) for part in view.pairs if (words := _part_words(view, *part))],
        facets=[(TITLES[name], name, *_facet(view, name, totals.facets.get(name, {}))) for name in TITLES],
        models=[model for model in models if model[-1]],
        checks=[check for check in checks if check is not None],
        score=_score(view, totals.scores, runs) if totals.scores is not None and runs else None,
        score_runs=[(run, and_list([f"“{name}”" for name in run.studies.values()])) for run in runs],
        agreement_words=agreement_words,
        not_scored=[kind for kind, number in kinds.items() if number and None not in scored and kind not in scored],
    )


def order_choice(view: View, totals: Totals) -> Html:
    """Return the menu of image orders. The value of each choice is a query string for the page's address."""
    known = [*ORDERS]
    if totals.score_runs:
        title = "validity score"
        known += [(f"{title}: low first", Order("score")), (f"{title}: high first", Order("score", falling=True))]
    for check in totals.checks:
        title = _check_title(check)
        known += [(f"{title}: low first", Order("check", check)), (f"{title}: high first", Order("check", check, True))]
    if not any(order == view.order for _, order in known):
        known.append((view.order.check or view.order.sort, view.order))
    chosen = None if view.ranked or view.grouped else view.order
    plain = View(alike=view.alike)
    options = [(words, urlencode(replace(plain, order=order).sort_pairs), order == chosen) for words, order in known]
    if view.ranked:
        options.insert(0, ("most alike first", "", True))
    elif view.alike:
        options.insert(0, ("group by group", "", view.grouped))
    return render("curate/order.html", view=view, options=options)


def _part_words(view: View, name: str, value: str) -> str:
    """Return the text for one filter of a view. The text is "" for a sort order and for values marked in a facet."""
    if name == "entries":
        number = len(view.filter.entries or ())
        return "one image" if number == 1 else f"{number:,} images of a list"
    if name == SCORE:
        return _band_words(ScoreBand.read(value))
    if name == "range":
        return _range_words(Between.read(value))
    if name == "alike":
        return ""
    if name == "model" and value.startswith(":"):
        return f"most-read model{value}"
    if name == NONE:
        return "not scored" if value == SCORE else f"no {value}"
    if name.startswith("-"):
        return f"no image without {value}" if name == f"-{NONE}" else f"not {name[1:]}: {value}"
    return _USED[name].format(value[:8] if name in ("source", "image") else value) if name in _USED else ""


def _facet(view: View, name: Facet, counts: Mapping[str, int]) -> tuple[Sequence[Chip], Sequence[Chip]]:
    """Return the values of a facet, chosen ones first, as two lists: visible at first, and hidden at first."""
    left_out = view.filter.without.get(name, ())
    chosen = {*view.filter.facets.get(name, ()), *left_out} - {""}
    values = [*sorted(chosen), *(value for value, number in counts.items() if number and value not in chosen)]
    if name in _RARE and len(values) < 2 and not chosen:
        return [], []
    chips: list[Chip] = [
        ((f"-{name}" if value in left_out else name, value), value, counts.get(value, 0), f"{name}:{value}")
        for value in values
    ]
    in_sight = len(chips) if len(chips) <= SHOWN + 1 else max(SHOWN, len(chosen))
    return chips[:in_sight], chips[in_sight:]


def _model_chips(view: View, model: str, counts: Mapping[str, int]) -> list[Chip]:
    chosen = view.filter.models.get(model, ())
    return [
        (("model", f"{model}:{one}"), _STANDING_WORDS.get(one, one), counts.get(one), f"model:{model}:{one}")
        for one in (*STANDINGS, UNREAD)
        if counts.get(one) or one in chosen
    ]


def _model_names(models: Iterable[str]) -> dict[str, str]:
    """Return each model's name, by key. Models with the same name, such as versions of a file, get numbers."""
    names = {model: short_model(model, {}) for model in models}
    same = {name: sorted(model for model in names if names[model] == name) for name in names.values()}
    return {
        model: name if len(same[name]) == 1 else f"{name} ({same[name].index(model) + 1})"
        for model, name in names.items()
    }


def _check(
    view: View, check: str, counts: Mapping[str, int], bars: tuple[Bar, ...] | None
) -> tuple[str, str, int, list[Chip], bool, Html | None] | None:
    """Return a check, its title, its number of failures, a chip for each outcome, True if the view filters by it, and
    its histogram (None while it is closed). Return None if there is nothing to show.
    """
    chosen = view.filter.checks.get(check, ())
    between = next((one for one in view.filter.between if one.check == check), None)
    chips: list[Chip] = [
        (("check", f"{check}:{outcome}"), outcome, counts.get(outcome, 0), f"check:{check}:{outcome}")
        for outcome in CHECK_OUTCOMES
        if counts.get(outcome) or outcome in chosen
    ]
    if not chips and between is None:
        return None
    title, ends = _check_title(check), None if between is None else (between.low, between.high)
    histogram = None if bars is None else _histogram(title, bars, ends, data_range=check)
    return check, title, counts.get("failed", 0), chips, bool(chosen) or between is not None, histogram


def _histogram(title: str, bars: tuple[Bar, ...], ends: tuple[float, float] | None, **data: str) -> Html:
    """Return a histogram with two handles to choose a range; `ends` is the chosen range, None for all."""
    if not bars:
        return small("No image has a figure.")
    low, high = bars[0].low, bars[-1].high
    steps = max(1, round((high - low) / 0.02))
    most = max(bar.entries for bar in bars)
    chosen = (max(low, ends[0]), min(high, ends[1])) if ends is not None else (low, high)
    columns = []
    for bar in bars:
        x, tall = 100 * round((bar.low - low) / 0.02) / steps, max(2.0, 38 * bar.entries / most)
        inside = chosen[0] - 1e-9 <= bar.low and bar.high <= chosen[1] + 1e-9
        words = f"{bar.low:.2f} to {bar.high:.2f}: {bar.entries:,}"
        columns.append((words, f"{x:.2f}", f"{40 - tall:.2f}", f"{tall:.2f}", inside))
    first, last = (f"{value:.2f}" for value in chosen)
    return render(
        "curate/histogram.html",
        title=title,
        bars=columns,
        width=f"{max(0.6, 100 / steps - 0.4):.2f}",
        low=f"{low:.2f}",
        high=f"{high:.2f}",
        ends=(first, last),
        words=f"{first} to {last}" if ends is not None else f"all: {low:.2f} to {high:.2f}",
        data=data,
    )


def _score(view: View, counts: ScoreCounts, runs: Sequence[ScoreRun]) -> tuple[list[Chip], Html]:
    """Return (filter values, histogram of the scores). The values are: a score of at least the threshold, a score below
    the threshold, and no score.
    """
    half = runs[0].agreement.threshold
    numbers = {ScoreBand(half): counts.at_least, ScoreBand(None, half): counts.below, None: counts.not_scored}
    chips: list[Chip] = [
        (part, _band_words(band, ""), number, f"score:{part[1] if band is not None else NONE}")
        for band, number in numbers.items()
        if number or band in view.filter.scores
        for part in ((SCORE, band.part) if band is not None else (NONE, SCORE),)
    ]
    bands = [band for band in view.filter.scores if band is not None]
    lows = [LOWEST if band.low is None else band.low for band in bands]
    highs = [HIGHEST if band.high is None else band.high for band in bands]
    ends = (min(lows), max(highs)) if bands else None  # the range that spans all chosen bands of scores
    return chips, _histogram("Validity score", counts.bars, ends, data_score="1")


def _band_words(band: ScoreBand | None, begin: str = "validity score ") -> str:
    if band is None:
        return "not scored"
    if band.low is None and band.high is None:
        return "scored"
    if band.high is None:
        return f"{begin}at least {band.low:.2f}"
    return f"{begin}below {band.high:.2f}" if band.low is None else f"{begin}{band.low:.2f} to {band.high:.2f}"


def _range_words(one: Between) -> str:
    title, low, high = _check_title(one.check), f"{one.low:.2f}", f"{one.high:.2f}"
    if one.low <= LOWEST:
        return f"{title} up to {high}"
    return f"{title} from {low}" if one.high >= HIGHEST else f"{title} {low} to {high}"


def _check_title(check: str) -> str:
    return WORDS[check].title if check in WORDS else check


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in text)
