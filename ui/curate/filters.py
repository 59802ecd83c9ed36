"""The column of filters beside the gallery: each value with how many images it would show, and the checks with sliders.

A press on a value is a link to the view with it, so that it works in a tab of its own and is read by the browser's own
means; the script of the page follows it without loading the page anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlencode

from core.catalogue import Bar, Order, ScoreCounts
from core.check_words import WORDS
from core.figures import percent
from core.image_filter import CHECK_OUTCOMES, HIGHEST, LOWEST, NONE, SCORE, STANDINGS, UNREAD, Between, Facet, ScoreBand
from core.validity_score import FEWEST, Agreement, ScoreRun
from services.curation.gallery import Totals
from services.curation.views import View, gallery_address
from services.evaluation.scoring import agreement_words
from ui.evaluate.words import evaluate_address
from ui.explore.parts import button, head_table, icon, named_row, short_model, small, thumb_url
from ui.markup import Child, Html, el

SHOWN = 8
"""Values of a facet that stand in sight; the rest is behind a press."""
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
_USED = {
    "source": "one source: {}",
    "run": "one run: {}",
    "image": "one image: {}",
    "batch": "one batch: {}",
    "edited": "edits: {}",
    "text": "captions: {}",
    "near": "like image {}",
    "like": "shows: {}",
    "picture": "like this picture",
    "region": "a part of the map",
    "role": "role: {}",
    "test_cases": "test cases alone",
    "not_in_study": "not in a study",
}
"""Words of parts that no chip shows, or, for a batch, that its page has led to."""
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
    names = _model_names(totals.models)
    models = [_model(view, name, counts, names[name]) for name, counts in totals.models.items()]
    each = [_check(view, name, counts, totals.histograms.get(name)) for name, counts in totals.checks.items()]
    checks = [check for check in each if check is not None]
    if totals.scores is not None and totals.score_runs:
        score: Html | None = _score(view, totals.scores, totals.score_runs, totals.facets.get("kind", {}))
    else:
        score = _no_score() if checks else None
    return el(
        "div",
        _used(view),
        facets[:3],
        models,
        _group("Checks", checks) if checks else None,
        score,
        _group("Near-duplicates", el("div", _alike(view), class_="chips"))
        if totals.count.number > 1 or view.alike
        else None,
        facets[3:],
        _to_evaluate(view.filter.address) if view.is_filter else None,
        id="filters",
        class_="filters",
    )


def _to_evaluate(address: str) -> Html:
    to = evaluate_address(filter=address)
    return el("a", "Evaluate a model on these", href=to, class_="small", id="to-evaluate")


def order_choice(view: View, totals: Totals) -> Html:
    """In which order images stand: a select whose values are those of the address."""
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
    options = [
        el("option", words, value=urlencode(replace(plain, order=order).sort_pairs), selected=order == chosen)
        for words, order in known
    ]
    if view.ranked:
        options.insert(0, el("option", "most alike first", value="", selected=True))
    elif view.alike:
        options.insert(0, el("option", "group by group", value="", selected=view.grouped))
    return el("select", options, id="order", aria_label="Order", disabled=view.ranked)


def _alike(view: View) -> Html:
    """A filter without a number: to find them every two images are compared."""
    words = "Only images that look like another one that is shown"
    return _chip(view, ("alike", "1"), el("span", "only near-duplicates"), None, "alike", title=words)


def _used(view: View) -> Html | None:
    """Parts of the view that no chip below shows, each with a way out of it."""
    links: list[Child] = [
        el(
            "a",
            el("img", src=thumb_url(view.picture), alt="") if picture else None,
            words,
            icon("cross"),
            href=gallery_address(rest),
            class_="chip on used with-picture" if picture else "chip on used",
            title="Take this out of the filter",
            data_view=rest.address,
        )
        for words, rest in _used_parts(view)
        for picture in [bool(view.picture) and not rest.picture]
    ]
    if not links and not view.address:
        return None
    links.append(el("a", "Clear all", href=gallery_address(), class_="small clear", data_view="", id="clear-filter"))
    return el("div", links, class_="chips")


def _used_parts(view: View) -> Iterator[tuple[str, View]]:
    """In words, with the view without it."""
    for name, value in view.pairs:
        words = _part_words(view, name, value)
        if words:
            yield words, view.toggled(name, value)


def _part_words(view: View, name: str, value: str) -> str:
    """Words for a part of a view; "" for a part that a chip of its own shows, and for the order."""
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


def _facet(view: View, name: Facet, counts: Mapping[str, int]) -> Html | None:
    chosen = {*view.filter.facets.get(name, ()), *view.filter.without.get(name, ())} - {""}
    values = [*sorted(chosen), *(value for value, number in counts.items() if number and value not in chosen)]
    if not values or (name in _RARE and len(values) < 2 and not chosen):
        return None
    chips = [_facet_chip(view, name, value, counts.get(value, 0)) for value in values]
    if len(chips) <= SHOWN + 1:
        return _group(TITLES[name], el("div", chips, class_="chips"))
    in_sight = {*chosen, *values[:SHOWN]}
    seen = [chip for value, chip in zip(values, chips, strict=True) if value in in_sight]
    rest = [chip for value, chip in zip(values, chips, strict=True) if value not in in_sight]
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


def _facet_chip(view: View, name: Facet, value: str, number: int) -> Html:
    key = f"{name}:{value}"
    if value in view.filter.without.get(name, ()):
        return _chip(view, (f"-{name}", value), el("s", value), number, key)
    if value in view.filter.facets.get(name, ()):
        return _chip(view, (name, value), el("span", value), number, key)
    other = view.toggled(f"-{name}", value).address
    words = "With Shift: everything but this"
    return _chip(view, (name, value), el("span", value), number, key, title=words, data_other=other)


def _chip(view: View, part: tuple[str, str], words: Child, number: int | None, key: str, **more: str) -> Html:
    """A press puts a part into the view, or takes it out."""
    on, then = part in view.pairs, view.toggled(*part)
    return el(
        "a",
        words,
        " ",
        el("small", f"{number:,}") if number is not None else None,
        href=gallery_address(then),
        class_="chip on" if on else "chip none" if number == 0 else "chip",
        aria_pressed="true" if on else "false",
        role="button",
        data_view=then.address,
        data_key=key,
        **more,
    )


def _model(view: View, model: str, counts: Mapping[str, int], name: str) -> Html | None:
    chosen = view.filter.models.get(model, ())
    chips = [
        _chip(
            view,
            ("model", f"{model}:{standing}"),
            el("span", _STANDING_WORDS.get(standing, standing)),
            counts.get(standing),
            f"model:{model}:{standing}",
        )
        for standing in (*STANDINGS, UNREAD)
        if counts.get(standing) or standing in chosen
    ]
    if not chips:
        return None
    title = ["Model under test ", el("small", name, class_="mut", title=model)]
    return _group(title, el("div", chips, class_="chips"))


def _model_names(models: Iterable[str]) -> dict[str, str]:
    """The name of each model by its key. Those of one name, such as two versions of a file, are numbered."""
    names = {model: short_model(model, {}) for model in models}
    same = {name: sorted(model for model in names if names[model] == name) for name in names.values()}
    return {
        model: name if len(same[name]) == 1 else f"{name} ({same[name].index(model) + 1})"
        for model, name in names.items()
    }


def _check(view: View, check: str, counts: Mapping[str, int], bars: tuple[Bar, ...] | None) -> Html | None:
    """A check: its outcomes, and once it is open a slider over the histogram of its figures."""
    chosen = view.filter.checks.get(check, ())
    between = next((one for one in view.filter.between if one.check == check), None)
    chips = [
        _chip(
            view,
            ("check", f"{check}:{outcome}"),
            el("span", outcome),
            counts.get(outcome, 0),
            f"check:{check}:{outcome}",
        )
        for outcome in CHECK_OUTCOMES
        if counts.get(outcome) or outcome in chosen
    ]
    if not chips and between is None:
        return None
    failed = counts.get("failed", 0)
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
        return small("No image has a figure.")
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


def _score(view: View, counts: ScoreCounts, runs: Sequence[ScoreRun], kinds: Mapping[str, int]) -> Html:
    """The score of validity: a chip for each side of its threshold, how it is spread, and what it is."""
    half = runs[0].agreement.threshold
    numbers = {ScoreBand(half): counts.at_least, ScoreBand(None, half): counts.below, None: counts.not_scored}
    chips = [
        _chip(view, part, el("span", _band_words(band, "")), number, f"score:{part[1] if band is not None else NONE}")
        for band, number in numbers.items()
        if number or band in view.filter.scores
        for part in ((SCORE, band.part) if band is not None else (NONE, SCORE),)
    ]
    bands = [band for band in view.filter.scores if band is not None]
    lows = [LOWEST if band.low is None else band.low for band in bands]
    highs = [HIGHEST if band.high is None else band.high for band in bands]
    ends = (min(lows), max(highs)) if bands else None  # of several all that they span
    return _group(
        "Validity score",
        el("div", chips, class_="chips"),
        _spread("Validity score", counts.bars, ends, data_score="1"),
        el("div", [_of_task(run) for run in runs], id="score-words"),
        [small(words) for words in _not_scored(runs, kinds)],
        button("Score again", "", "s", id="score-images", title="Learn from all votes that there are by now"),
    )


def _no_score() -> Html:
    words = (
        f"Once people have judged {FEWEST} valid and {FEWEST} invalid images of a task in studies, the checks can "
        "foretell how likely they find each of the others valid."
    )
    return el(
        "details",
        el("summary", "Validity score: none yet"),
        small(words),
        button("Score images", "", "s", id="score-images"),
        class_="more-values",
        id="no-score",
    )


def _of_task(run: ScoreRun) -> Html:
    """What the scores of a task are and how far they can be believed."""
    found = run.agreement
    rows = [
        named_row(
            f"{mean:.2f}",
            el("td", f"{share:.2f}", class_="n"),
            el("td", f"{round(share * images):,} of {images:,}", class_="n"),
        )
        for mean, share, images in found.bins
    ]
    heads = [
        el("th", words, scope="col", class_="n" if at else None)
        for at, words in enumerate(("foretold", "found", "valid"))
    ]
    return el(
        "div",
        small(_score_words(run)),
        small(_threshold_words(found)),
        el(
            "details",
            el("summary", "Foretold and found"),
            small("Judged images, by tenths of the score: of those with 0.80 on average 0.80 should be valid."),
            head_table(heads, rows, class_="score-bins"),
            class_="more-values",
        ),
        class_="score-run",
        data_task=run.task,
    )


def _score_words(run: ScoreRun) -> str:
    """What the scores of a task are, for who sees them for the first time."""
    names = [f"“{name}”" for name in run.studies.values()]
    studies = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    begin = f"Images of a {run.task}: how" if run.task is not None else "How"
    words = (
        f"{begin} likely people find an image valid, as its checks foretell it: learnt from the votes of {studies} on "
        f"{run.created:%d %B %Y}. {agreement_words(run.agreement)}"
    )
    if run.task is None:
        words += " An earlier version learnt it from the images of all tasks together: press “Score again”."
    return words


def _threshold_words(found: Agreement) -> str:
    """How many of the images with a high score are valid, and how many of the valid ones have one."""
    if found.precision is None or found.recall is None:
        return f"No judged image has a score of {found.threshold:.2f} or more."
    return (
        f"Of the images with {found.threshold:.2f} or more, {percent(found.precision)} are valid (precision), and "
        f"{percent(found.recall)} of the valid ones are among them (recall); {percent(found.valid / found.images)} of "
        "all judged images are valid."
    )


def _not_scored(runs: Sequence[ScoreRun], kinds: Mapping[str, int]) -> Iterator[str]:
    """Tasks of which nothing is foretold, a sentence each."""
    known = {run.task for run in runs}
    for kind, number in kinds.items():
        if number and None not in known and kind not in known:
            yield (
                f"Images of a {kind} have no score: it takes {FEWEST} that people found valid and {FEWEST} that they "
                "found not to be, and votes on another task say nothing of them."
            )


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


def _range_words(one: Between) -> str:
    title, low, high = _check_title(one.check), f"{one.low:.2f}", f"{one.high:.2f}"
    if one.low <= LOWEST:
        return f"{title} up to {high}"
    return f"{title} from {low}" if one.high >= HIGHEST else f"{title} {low} to {high}"


def _check_title(check: str) -> str:
    return WORDS[check].title if check in WORDS else check


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in text)
