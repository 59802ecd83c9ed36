"""The goals of the paper's questions on the drawn world, each with the figure beside it: reached, missed, or nobody can
tell. No goal is claimed without its figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from core.evaluation_results import Effectiveness
from core.figures import Figure
from evaluation.report import CANNOT_TELL, per_cent, with_interval
from evaluation.retraining.arm_statistics import CONTROLS
from experiments.paper import retraining as rq3
from experiments.paper.breaking import Breaking, factor_of, times_of
from experiments.paper.prioritising import Prioritising
from experiments.paper.retraining import Retraining
from experiments.paper.size import Size
from experiments.paper.validity import PAPERS_WAY, Validity
from experiments.paper.world import FAMILIES, PLANTED_TYPES, Family
from study.intervals import wilson

TITLES: Mapping[Family, str] = {"object": "classifier", "road": "segmenter"}
STUDIES, TIMES, POINTS, CELLS, HALF, LOSS = 300, 5.0, 0.10, 0.90, 0.5, 0.01
MINUTES, EVALUATION = 60.0, 5.0
SOURCES, CAPTIONS, SEEDS = 500, 5, 5
MAIN_ARM = rq3.GENERATED
"""The paper's arm; goals are held against it, and not against the best of several."""


@dataclass(frozen=True)
class Goal:
    """One goal and what was measured."""

    question: str
    what: str
    wanted: str
    measured: str
    reached: bool | None
    """None where nobody can tell."""

    @property
    def words(self) -> str:
        """In a word."""
        return CANNOT_TELL if self.reached is None else "reached" if self.reached else "MISSED"


@dataclass(frozen=True)
class Results:
    """All that was found."""

    size: Size
    validity: Mapping[Family, Validity]
    breaking: Mapping[Family, Breaking]
    prioritising: Prioritising
    retraining: Mapping[Family, Retraining]
    cases: Mapping[Family, int]
    full: Mapping[Family, int]
    """Sources that have `CAPTIONS` test cases or more."""
    minutes: Mapping[str, float]
    """What each stage took."""


def goals(held: Results) -> tuple[Goal, ...]:
    """All of them, in the order of the questions."""
    return (*_extent(held), *_validity(held), *_breaking(held), *_retraining(held), *_time(held))


def _extent(held: Results) -> Iterator[Goal]:
    for family in FAMILIES:
        cases, full = held.cases[family], held.full[family]
        yield Goal(
            "set",
            f"{TITLES[family]}: sources and test cases",
            f"{SOURCES} x {CAPTIONS} or more",
            f"{held.size.sources:,} sources, {cases:,} test cases, at least {CAPTIONS} of {full:,} sources",
            full >= SOURCES,
        )


def _validity(held: Results) -> Iterator[Goal]:
    for family in FAMILIES:
        for row in held.validity[family].coverage:
            if row.figure == PAPERS_WAY:
                continue  # it claims something else, and is shown beside
            share = row.share
            ends = wilson(row.held, row.studies) if row.studies else None
            told = f"{CANNOT_TELL}: no study gave an interval"
            if share is not None and ends is not None and ends.low is not None and ends.high is not None:
                told = f"{per_cent(share)} of {row.studies:,} studies ({100 * ends.low:.1f} to {100 * ends.high:.1f})"
            enough = share is not None and row.studies >= STUDIES
            if share is not None and not enough:
                told += f", fewer than {STUDIES}"
            yield Goal(
                "RQ1",
                f"{TITLES[family]}: 95 % intervals hold the truth: {row.figure}",
                "93 to 97 %",
                told,
                0.93 <= share <= 0.97 if share is not None and enough else None,
            )
    for family in FAMILIES:
        score = held.validity[family].score
        told, reached = f"{CANNOT_TELL}: {held.validity[family].score_why}", None
        if score is not None:
            known = score.auc.value is not None and score.auc.low is not None
            told, reached = _plain(score.auc), True if known else None
        yield Goal("RQ1", f"{TITLES[family]}: AUC of the automatic score against the truth", "stated", told, reached)


def _breaking(held: Results) -> Iterator[Goal]:
    whole = held.breaking["object"].classifier
    assert whole is not None
    times, told = factor_of(whole)
    yield Goal(
        "RQ2",
        "classifier: error on generated images over that on originals",
        "at least 5 times",
        told,
        _at_least_times(times, whole),
    )
    error, excess = whole.error_original.value, whole.excess.value
    beyond, told = times_of(whole.error_original, error + excess if error is not None and excess is not None else None)
    yield Goal(
        "RQ2",
        "classifier: the same, of what the edits alone add (error on originals plus excess over reconstructions)",
        "at least 5 times",
        f"{told}; excess {with_interval(whole.excess, points=True)}",
        _at_least_times(beyond, whole),
    )
    roads = held.breaking["road"].segmenter
    assert roads is not None
    for name, figure in (
        ("mIoU, generated less original", roads.difference),
        ("mIoU, generated less reconstructed", roads.excess),
    ):
        yield Goal(
            "RQ2",
            f"segmenter: {name}",
            "down by 10 points or more",
            with_interval(figure, points=True),
            None if figure.value is None else figure.value <= -POINTS,
        )
    for family in FAMILIES:
        named = held.breaking[family].weakest_types
        yield Goal(
            "RQ2",
            f"{TITLES[family]}: the edit types named as weakest",
            f"those left out of training: {' and '.join(sorted(PLANTED_TYPES))}",
            " and ".join(named) or f"{CANNOT_TELL}: no edit type hurts for certain",
            set(named) == set(PLANTED_TYPES) if named else None,
        )
    share, found = held.prioritising.share_found, held.prioritising
    yield Goal(
        "RQ2",
        "classifier: planted weak cells found at 5 % of the images by the ranking",
        "at least 90 %",
        f"{per_cent(share)} of {len(found.weak)} cells; {found.shown} of them have a valid fault among all images"
        if share is not None
        else f"{CANNOT_TELL}: no cell is weak",
        _from(share, CELLS),
    )


def _retraining(held: Results) -> Iterator[Goal]:
    for family in FAMILIES:
        found, who = held.retraining[family], f"{TITLES[family]}, {MAIN_ARM}"
        back = next(
            (one.share for one in found.won_back if one.arm == MAIN_ARM), Figure(None, why="there is no such set")
        )
        yield Goal(
            "RQ3",
            f"{who}: share of the lost accuracy that is won back",
            "at least half",
            with_interval(back),
            _from(back.value, HALF),
        )
        kept = found.row(MAIN_ARM, rq3.ON_ORIGINAL).gain
        yield Goal(
            "RQ3",
            f"{who}: accuracy on originals beside “{rq3.ORIGINAL}”",
            "at most 1 point less",
            with_interval(kept, points=True),
            None if kept.value is None else kept.value >= -LOSS,
        )
        for control in CONTROLS:
            more = found.beside_controls.get((MAIN_ARM, control), Figure(None, why="there is no such set"))
            yield Goal(
                "RQ3",
                f"{who}: accuracy on generated images of unseen sources beside “{control}”",
                "more, for certain",
                with_interval(more, points=True),
                None if more.low is None else more.low > 0,
            )
        yield Goal(
            "RQ3",
            f"{TITLES[family]}: trainings of each arm",
            f"at least {SEEDS}",
            f"{found.seeds}, of {found.recipe.updates} updates each",
            found.seeds >= SEEDS,
        )
        yield Goal(
            "RQ3",
            f"{TITLES[family]}: images on two sides, by hash or by look",
            "none",
            "none" if not found.shared else f"{len(found.shared)} or more, such as {found.shared[0].one.name}",
            not found.shared,
        )


def _time(held: Results) -> Iterator[Goal]:
    whole = sum(held.minutes.values())
    own = held.minutes.get("reading", 0.0) + held.minutes.get("figures", 0.0)
    yield Goal("time", "the whole", "at most 60 minutes", f"{whole:.1f} minutes", whole <= MINUTES)
    yield Goal(
        "time",
        "evaluation without generating and retraining: predictions, checks, truth, studies, tables",
        "under 5 minutes",
        f"{own:.1f} minutes",
        own < EVALUATION,
    )


def _at_least_times(times: float | None, whole: Effectiveness) -> bool | None:
    """Whether it is so many times the error on originals. Where there is no such error, `times` is the least that it
    can be: too little of it says nothing.
    """
    if times is None or (times < TIMES and whole.error_original.value == 0):
        return None
    return times >= TIMES


def _from(value: float | None, least: float) -> bool | None:
    return None if value is None else value >= least


def _plain(figure: Figure) -> str:
    if figure.value is None:
        return f"{CANNOT_TELL}: {figure.why}"
    ends = f" ({figure.low:.3f} to {figure.high:.3f})" if figure.low is not None and figure.high is not None else ""
    return f"{figure.value:.3f}{ends}, n = {figure.n:,} images of {figure.sources:,} sources"
