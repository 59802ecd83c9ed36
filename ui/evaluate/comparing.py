"""Two evaluations side by side: two models on one subject, or one model on two versions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from core.figures import Figure
from services.evaluation.types import EDIT_TABLES, EditTable, Evaluated, ModelComparison
from ui.evaluate.edits import rows_in_sight
from ui.evaluate.explained import explained
from ui.evaluate.plots import change_axis, change_plot
from ui.evaluate.result import strong_figures
from ui.evaluate.segmenter import change_of
from ui.evaluate.words import CANNOT_TELL, Place, ends_of, per_cent, points, signed
from ui.explore.parts import head_table, heading, muted, named_row, small
from ui.markup import Child, Html, el

Pair = tuple[Evaluated, Evaluated]
Say = Callable[[Figure], str]


def comparison_part(pair: Pair, places: tuple[Place, Place], compared: ModelComparison | None = None) -> Html:
    """Which of two `compared` models is better; figures of both, row by row; what edits and classes do to each."""
    first, second = pair
    if first.kind != second.kind:
        words = "These two are of different kinds of tasks: there is nothing to compare."
        return el("section", el("p", words, class_="notice"), id="part-compared", class_="card box")
    names = _names(pair)
    heads = [
        el(
            "th",
            el("i", class_=look),
            " ",
            el("a", name, href=place.to(beside="", other=None)),
            scope="col",
            class_="n",
        )
        for name, place, look in zip(names, places, ("first", "second"), strict=True)
    ]
    table = head_table(
        [el("th", "", scope="col"), heads],
        [_figure_row(words, figures, say) for words, figures, say in _figures(pair)],
        class_="side-by-side",
    )
    both = [_edits(pair, table_name) for table_name in EDIT_TABLES if table_name != "class"]
    return el(
        "section",
        heading(
            "Side by side",
            el("a", "Show one alone", href=places[0].to(beside="", other=None), class_="btn s"),
            class_="card-head",
        ),
        _paired(pair, compared) if compared is not None else None,
        muted(strong_figures(second.answer)),
        table,
        _same_sources(pair),
        el("div", [*both, _classes(pair)], class_="eval-columns"),
        id="part-compared",
        class_="card box",
    )


def _paired(pair: Pair, compared: ModelComparison) -> list[Child]:
    """Which of two models is better on the same test cases, and on how many one alone is wrong."""
    paired, names = compared.paired, _names(pair)
    if paired.difference.value is None:
        return [el("p", compared.answer, id="which-is-better")]
    what = "wrong" if pair[0].effectiveness is not None else "loses a class"
    alone = (
        f"Only {names[0]} {'is ' if what == 'wrong' else ''}{what}: {paired.only_first:,}; only {names[1]}: "
        f"{paired.only_second:,} test cases."
    )
    left = f" Left out, as not both can be compared: {paired.left_out:,}." if paired.left_out else ""
    better = el("p", strong_figures(compared.answer), explained("", "paired difference"), id="which-is-better")
    return [better, small(alone + left)]


def _names(pair: Pair) -> tuple[str, str]:
    first, second = pair
    if first.model != second.model:
        return first.model, second.model
    return first.subject.title, second.subject.title


def _figures(pair: Pair) -> list[tuple[str, tuple[Figure | None, Figure | None], Say]]:
    def both(get: Callable[[Evaluated], Figure | None]) -> tuple[Figure | None, Figure | None]:
        return get(pair[0]), get(pair[1])

    if pair[0].effectiveness is not None and pair[1].effectiveness is not None:
        one, two = pair[0].effectiveness, pair[1].effectiveness
        return [
            ("error on originals", (one.error_original, two.error_original), _share),
            ("error on generated images", (one.error_generated, two.error_generated), _share),
            ("error on reconstructions", (one.error_reconstructed, two.error_reconstructed), _share),
            ("generated less original", (one.difference, two.difference), _points),
            ("in excess of reconstruction", (one.excess, two.excess), _points),
            ("error, times the original", (one.factor, two.factor), _times),
            ("wrong and valid", both(lambda held: held.validity.by_strata if held.validity else None), _share),
        ]
    if pair[0].segmentation is not None and pair[1].segmentation is not None:
        a, b = pair[0].segmentation, pair[1].segmentation
        return [
            ("mIoU on originals", (a.miou_original, b.miou_original), _share),
            ("mIoU on generated images", (a.miou_generated, b.miou_generated), _share),
            ("mIoU on reconstructions", (a.miou_reconstructed, b.miou_reconstructed), _share),
            ("generated less original", (a.difference, b.difference), _points),
            ("in excess of reconstruction", (a.excess, b.excess), _points),
            ("test cases that lose a class", both(lambda held: held.losses.generated if held.losses else None), _share),
            ("reconstructions that do", both(lambda held: held.losses.reconstructed if held.losses else None), _share),
            ("loses a class, in excess", both(lambda held: held.losses.excess if held.losses else None), _points),
            ("loses a class and valid", both(lambda held: held.validity.by_strata if held.validity else None), _share),
        ]
    return []


def _share(figure: Figure) -> str:
    return per_cent(figure.value)


def _points(figure: Figure) -> str:
    return f"{points(figure.value)} points"


def _times(figure: Figure) -> str:
    return f"{figure.value:.1f}"


def _figure_row(words: str, figures: Sequence[Figure | None], say: Say) -> Html:
    cells = []
    for one in figures:
        if one is None or one.value is None:
            cells.append(
                el("td", CANNOT_TELL, el("small", one.why if one is not None else "", class_="mut"), class_="n")
            )
            continue
        if say is _times:
            ends = f"{one.low:.1f} to {one.high:.1f}" if one.low is not None and one.high is not None else one.why
        else:
            ends = ends_of(one, say is _points)
        cells.append(el("td", el("b", say(one)), el("small", ends, class_="mut"), class_="n"))
    return named_row(explained(words), cells)


def _same_sources(pair: Pair) -> Html:
    one, two = pair[0].subject, pair[1].subject
    figures = [held.effectiveness or held.segmentation for held in pair]
    cases = [figure.cases if figure is not None else 0 for figure in figures]
    if one.subject == two.subject and cases[0] == cases[1]:
        words = f"Both on the same {cases[0]:,} test cases of {figures[0].sources if figures[0] else 0:,} sources."
    else:
        told = [f"{name}: {number:,} test cases" for name, number in zip(_names(pair), cases, strict=True)]
        words = f"{'; '.join(told)}."
        if one.subject == two.subject:
            words += " Each leaves out what it has not read, and labels that it cannot say: they are not the same ones."
    return small(words, id="same-sources")


def _edits(pair: Pair, table: EditTable) -> Html | None:
    rows = [{one.row.name: one.row for one in held.edits.get(table, ())} for held in pair]
    if not rows[0] or not rows[1]:
        return None
    nothing = Figure(None, why="no test case has it")
    both = {
        name: tuple(held[name].change if name in held else nothing for held in rows)
        for name in dict.fromkeys([*rows[0], *rows[1]])
    }
    cases = {name: max(held[name].n for held in rows if name in held) for name in both}
    return _two_dots(f"Which edits hurt, by {table}", both, cases)


def _classes(pair: Pair) -> Html | None:
    rows = [_class_changes(held) for held in pair]
    nothing = Figure(None, why="it has no such class")
    names = dict.fromkeys([*rows[0], *rows[1]])
    both = {name: tuple(held.get(name, nothing) for held in rows) for name in names}
    what = "error" if pair[0].effectiveness is not None else "IoU"
    sizes = [_class_sizes(held) for held in pair]
    cases = {name: max(of.get(name, 0) for of in sizes) for name in both}
    return _two_dots(f"By class, {what} generated less original", both, cases, in_points=True) if both else None


def _class_changes(held: Evaluated) -> dict[str, Figure]:
    if held.effectiveness is not None:
        return {row.label: row.difference for row in held.effectiveness.classes}
    found = held.segmentation.classes if held.segmentation is not None else ()
    return {one.name: change_of(one) for one in found}


def _class_sizes(held: Evaluated) -> dict[str, int]:
    """Test cases of each class; of a segmenter, whose figures are of all pixels, those of the whole set."""
    if held.effectiveness is not None:
        return {row.label: row.cases for row in held.effectiveness.classes}
    found = held.segmentation
    return {one.name: found.cases for one in found.classes} if found is not None else {}


def _two_dots(
    title: str, both: Mapping[str, tuple[Figure, ...]], cases: Mapping[str, int], in_points: bool = False
) -> Html:
    """A row for each name with a dot for each model; `cases` are its test cases."""
    axis = change_axis([one for figures in both.values() for one in figures])
    say = points if in_points else signed
    drawn = [
        (
            cases[name],
            named_row(
                name,
                el("td", change_plot(figures, axis), class_="plot-cell"),
                [el("td", say(one.value), class_="n", title=one.why or None) for one in figures],
            ),
        )
        for name, figures in both.items()
    ]
    return el("div", el("h3", title), rows_in_sight((), drawn, class_="edits stacks"))
