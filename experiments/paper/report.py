"""Writes the report on the paper's questions as Markdown, with pictures: first the goals, then all figures."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.figures import Figure
from demo.check_truth import Truth
from evaluation.report import CANNOT_TELL, latex, per_cent, rows, with_interval
from evaluation.retraining.arm_statistics import CONTROLS
from evaluation.sensitivity import SensitivityRow
from experiments.paper import charts
from experiments.paper import retraining as rq3
from experiments.paper.annotators import crew_in_words
from experiments.paper.breaking import Breaking
from experiments.paper.charts import Bar
from experiments.paper.goals import MAIN_ARM, TITLES, Goal, Results, Stated, figures, goals, in_unit
from experiments.paper.prioritising import BUDGET, LABEL_FIRST, OURS, WEAK, WRONG_FIRST, Found
from experiments.paper.size import FAMILIES, FULL, Family
from experiments.paper.under_test import ARCHITECTURES
from experiments.paper.validity import FIGURES, FLAWLESS, Validity
from experiments.paper.world import ALWAYS, AT_TIMES, LEFT_OUT, QUOTAS, SHIFTS, TAUGHT_WRONG

_BROKEN = {
    "edit_missing": "the edit does not show",
    "label_lost": "it shows another label",
    "class_lost": "a protected class is lost",
    "thing_lost": "a vehicle or pedestrian is lost",
    "surroundings_lost": "a large piece of the surroundings is lost",
    "form_lost": "a form has melted",
}
assert set(_BROKEN) == set(Truth.__dataclass_fields__)


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *(f"| {' | '.join(line)} |" for line in lines)]


def write(run: Results, stated: Stated, file: Path, examples: Sequence[tuple[Path, Path, str]]) -> tuple[Goal, ...]:
    """Write the report, and its pictures into the same folder. Return the goals. Each of `examples` is the file of a
    source, the file of a test case made from it, and the edit in words.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    reached = goals(run, stated)
    pictures = {name: file.with_name(f"{file.stem}-{name}.png") for name in ("cases", "edits", "coverage", "arms")}
    charts.sheet(examples, pictures["cases"])
    _chart_edits(run, pictures["edits"])
    _chart_coverage(run, pictures["coverage"])
    _chart_arms(run, pictures["arms"])
    names = {name: one.name for name, one in pictures.items()}
    parts = (
        _head(run, stated, reached),
        _set(run, names),
        _rq1(run, names),
        _rq2(run, names),
        _ranking(run),
        _rq3(run, names),
    )
    file.write_text("\n".join(line for part in parts for line in part) + "\n", encoding="utf-8")
    return reached


def _head(run: Results, stated: Stated, found: Sequence[Goal]) -> Iterator[str]:
    missed = [goal for goal in found if goal.reached is False]
    unknown = [goal for goal in found if goal.reached is None]
    yield "# The paper's questions on the drawn world"
    yield ""
    yield "Written by `make paper-demo`; every figure comes from a run on this machine."
    yield "All images are drawn from noise, not from the inverted source as the demo draws by default."
    yield ""
    if run.size != FULL:
        yield f"**A {run.size.name} run: it shows that every part works, and its figures say nothing of the models.**"
        yield ""
    yield from (f"- {sentence}" for sentence in answers(run))
    yield ""
    yield "## Goals"
    yield ""
    reached = len(found) - len(missed) - len(unknown)
    yield (
        f"Of {len(found)} goals {reached} are reached, {len(missed)} are missed and {len(unknown)} unknown, "
        "which counts as not reached. Each is judged by the worse end of its interval: the lower one for “at least”, "
        f"the upper one for “at most”. {stated.words}"
    )
    yield ""
    yield from (
        f"- **MISSED:** {goal.rule.question}, {goal.what}: {goal.measured}, wanted {goal.rule.wanted}."
        for goal in missed
    )
    yield from ("",) if missed else ()
    lines = [
        (goal.rule.question, goal.what, goal.rule.wanted, goal.measured, goal.compared, goal.words) for goal in found
    ]
    yield from table(("question", "goal", "wanted", "measured", "for comparison", "reached"), lines)
    yield ""
    yield "A result that would miss each of them:"
    yield ""
    yield from (f"- {one.question}, {one.goal}: {one.missed_by}." for one in stated.rules)
    yield ""
    yield "Figures in brackets are 95 % intervals: over sources, never over images, unless stated otherwise."
    yield ""


def answers(run: Results) -> Iterator[str]:
    """Yield sentences that state the main findings of the run, good and bad ones."""
    by_name = figures(run)
    for title in TITLES.values():
        what = "mIoU" if title == "segmenter" else "error"
        excess = by_name[f"{title}: excess"]
        original = in_unit(by_name[f"{title}: error on originals"], "share")
        of = " of the pixels of" if title == "segmenter" else " of"
        edits = f"the edits change its {what} by {in_unit(excess, 'points')} beyond what drawing alone does"
        if not excess.clear_of_zero:
            edits = f"what the edits do to its {what}, {in_unit(excess, 'points')}, may be chance"
        yield f"The {title} is wrong on {original}{of} the originals; {edits}."
    ours = by_name[f"classifier: {OURS} over {WRONG_FIRST}"]
    order = _compared(ours, "more", "fewer", f"weak cells than {WRONG_FIRST}")
    yield f"In the first {100 * BUDGET:.0f} % of the images, our order shows {order}."
    for title in TITLES.values():
        for on, images in (
            (rq3.ON_UNSEEN, "generated images of an unseen edit type"),
            (rq3.ON_SHIFT, "the natural shift"),
        ):
            more = by_name.get(f"{title}: generated over augmentation: {on}", Figure(None, why="there is no such set"))
            gain = _compared(more, "more", "less", "accuracy than augmentation does")
            yield f"On {images}, learning from generated images brings the {title} {gain}."


def _compared(figure: Figure, more: str, less: str, what: str) -> str:
    """Describe a difference with the word `more` or `less`, by its sign. If its interval includes 0, say neither."""
    value = in_unit(figure, "points")
    if figure.value is None or figure.low is None:
        return f"more or less {what}: {value}"
    if not figure.clear_of_zero:
        return f"neither {more} nor {less} {what} for certain ({value})"
    return f"{more if figure.value > 0 else less} {what} ({value})"


def _set(run: Results, names: dict[str, str]) -> Iterator[str]:
    yield "## What is tested, and with what"
    yield ""
    yield (
        f"- Sources: {run.size.sources:,} pictures of single things and {run.size.sources:,} road scenes with "
        "masks, drawn by the renderer, all of fair days (sunny or cloudy, by day), as data sets of the layout “csv”. "
        "No model of the demo saw them, nor scenes with their seeds."
    )
    lessons = [
        f"a {TITLES[one]} (`{ARCHITECTURES[one]}`) by {run.size.lessons[one][1]:,} updates on "
        f"{run.size.lessons[one][0]:,} scenes"
        for one in FAMILIES
    ]
    yield (
        f"- Models under test: trained briefly for this run, {' and '.join(lessons)}, of fair days alone. **Planted "
        f"weaknesses**, left out of their training: {', '.join(LEFT_OUT)}. **Inside it**, taught wrongly: "
        f"{_taught_wrong(ALWAYS)}; and, of low contrast, taught wrongly {100 * AT_TIMES:.0f} times of 100: "
        f"{_taught_wrong(AT_TIMES)}."
    )
    quotas = "; ".join(f"{one.captions} of {', '.join(one.types)}" for one in QUOTAS)
    yield (
        f"- Test cases: batches of a workspace with the demo profile at {run.size.steps} steps; the captioner's own "
        "captions, the language model's own edits, one edit a case. Nothing is picked by hand or put right. Sources "
        f"have **unequal** numbers of them, and those of one source fail together: at most {quotas}. "
        "**Control:** a reconstruction of each source, from its unedited caption."
    )
    for family in FAMILIES:
        many = run.cases[family]
        listed = ", ".join(f"{many[number]:,} with {number}" for number in sorted(many))
        yield (
            f"- The {TITLES[family]}'s test cases: {sum(number * many[number] for number in many):,}; sources by how "
            f"many they have: {listed}."
        )
    yield (
        "- Truth: the scene says where everything is and how it looks after its edit, and judges that were trained on "
        "rendered scenes only, and share nothing with generator, CLIP or models under test, read what the image "
        "shows of "
        "that (`demo/check_truth.py`). What they do not read in the ideal image either is held against no image. So "
        "“valid” here means: the edit shows, the label is right, and nothing is lost or melted **as far as these "
        "judges "
        "see**; they err, and people may find otherwise. If the world cannot place an edit in the scene (the "
        "captioner was wrong, or the world does not know the word), validity is unknown: such images count in RQ2 and "
        "in no figure of validity."
    )
    took = ", ".join(f"{stage} {minutes:.1f}" for stage, minutes in run.minutes.items())
    yield (
        f"- Machine: {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}. Minutes: {took}."
    )
    yield ""
    yield f"![Sources, each beside one of its test cases]({names['cases']})"
    yield ""
    yield "The first test cases of the first sources, chosen by nobody."
    yield ""


def _taught_wrong(share: float) -> str:
    """List the things, such as "red bird", whose labels are wrong in this share of their training scenes."""
    own = [one for family in FAMILIES for one in TAUGHT_WRONG[family] if one.share == share]
    return ", ".join(f"{one.word} {one.label} as {one.taught}" for one in own)


def _rq1(run: Results, names: dict[str, str]) -> Iterator[str]:
    yield "## RQ1: are the images valid?"
    yield ""
    yield f"Votes are of **{crew_in_words()}**; who they are is made up, and what they vote on is the truth above."
    yield ""
    for family in FAMILIES:
        yield from _validity(family, run.validity[family])
    yield "### Do the intervals hold the truth?"
    yield ""
    yield (
        f"{run.size.studies:,} simulated studies, each with {run.size.study_sources:,} sources drawn with "
        f"replacement from those of the run, and votes on {run.size.judged:,} of their images by simulated "
        "annotators of its own; the sample is stratified by whether the model is right, and by edit type. An interval "
        "that claims 95 % should hold the truth of all images in 93 to 98 of 100 studies. Where votes have no errors, "
        "sampling alone is uncertain: what is missing below that is what simulated annotators who err together do, and "
        "an interval over sources does not know it."
    )
    yield ""
    lines = [
        (
            TITLES[family],
            row.figure,
            row.annotators,
            per_cent(row.truth),
            f"{row.share.n:,}",
            in_unit(row.share, "share"),
            per_cent(row.width),
        )
        for family in FAMILIES
        for row in run.validity[family].coverage
    ]
    yield from table(("task", "figure", "votes of", "truth", "studies", "interval holds it", "mean width"), lines)
    yield ""
    yield f"![How often intervals hold the truth]({names['coverage']})"
    yield ""


def _validity(family: Family, found: Validity) -> Iterator[str]:
    yield f"### Images of the {TITLES[family]}"
    yield ""
    lines = [
        (
            row.name,
            f"{row.images:,}",
            per_cent(row.valid / known if (known := row.images - row.cannot_tell) else None),
            f"{row.cannot_tell:,}",
        )
        for row in found.by_type
    ]
    yield from table(("edit type", "test cases", "valid by the truth", "cannot tell"), lines)
    yield ""
    broken = ", ".join(f"{_BROKEN[name]} ({number:,})" for name, number in found.broken_by)
    yield f"Broken by: {broken or 'nothing'}. An image may be broken in several ways."
    yield ""
    study = found.study
    decided = study.images - study.discarded
    yield (
        f"One simulated study of {study.images:,} of them, one a source: {study.found.words} are found valid, "
        f"{per_cent(study.true)} are. Without a consensus, and so discarded: {study.discarded:,}; of the other "
        f"{decided:,} the simulated annotators are right about {study.right:,}."
    )
    yield ""
    score = found.score
    if score is None:
        yield f"Automatic score: {CANNOT_TELL}, since {found.score_why}."
    else:
        auc = (
            with_interval(score.auc)
            if score.auc.value is None
            else f"{score.auc.value:.3f} ({score.auc.low:.3f} to {score.auc.high:.3f})"
        )
        yield (
            "Automatic score: a logistic regression on what the checks measure, learnt from simulated votes on the "
            "test "
            f"cases of the training side and held against the truth of {score.images:,} test cases of other sources "
            f"({score.valid:,} of them valid): AUC {auc}; from {score.threshold:g} on, precision "
            f"{per_cent(score.precision)} and recall {per_cent(score.recall)}. **Accepting all** has a precision of "
            f"{per_cent(score.valid / score.images)} and a recall of 100 %; the score's precision is "
            f"{in_unit(found.over_accepting_all, 'points')} beside that."
        )
    yield ""
    if found.effect is not None:
        yield "What one simulated study with a stratified sample makes of the error on generated images:"
        yield ""
        effect = found.effect
        made_of_it = [
            (title, with_interval(getattr(effect, name)), per_cent(found.truths.get(title)))
            for title, name in FIGURES.items()
        ]
        head = ("figure", f"{effect.judged:,} images judged", "truth")
        yield from table(head, [("as measured", with_interval(effect.as_measured), "-"), *made_of_it])
        yield ""


def _rq2(run: Results, names: dict[str, str]) -> Iterator[str]:
    yield "## RQ2: where do the models break?"
    yield ""
    whole, roads = run.breaking["object"].classifier, run.breaking["road"].segmenter
    assert whole is not None and roads is not None
    yield "### Classifier"
    yield ""
    lines = [
        (row.figure, _figure(Figure(row.value, row.low, row.high, row.images, row.sources, row.why), row.figure))
        for row in rows(whole)
        if row.part == "all"
    ]
    yield from table(("figure", f"{whole.cases:,} test cases of {whole.sources:,} sources"), lines)
    yield ""
    yield "As the paper's Table I, with what it lacks:"
    yield ""
    yield f"```latex\n{latex('The demo classifier', whole)}```"
    yield ""
    yield from _edits(run.breaking["object"], "error", "the change of the probability of the true class")
    yield "### Segmenter"
    yield ""
    lines = [
        ("mIoU on originals", with_interval(roads.miou_original)),
        ("mIoU on generated images", with_interval(roads.miou_generated)),
        ("mIoU on reconstructions", with_interval(roads.miou_reconstructed)),
        ("generated less original", with_interval(roads.difference, points=True)),
        ("generated less reconstructed", with_interval(roads.excess, points=True)),
        (
            f"mIoU on the {roads.kept:,} generated images whose mask a check finds in place",
            with_interval(roads.miou_where_kept),
        ),
    ]
    yield from table(("figure", f"{roads.cases:,} test cases of {roads.sources:,} sources"), lines)
    yield ""
    classes = [
        (
            one.name,
            *(
                per_cent(value) if value is not None else "-"
                for value in (one.iou_original, one.iou_reconstructed, one.iou_generated)
            ),
        )
        for one in roads.classes
    ]
    yield from table(("IoU", "original", "reconstructed", "generated"), classes)
    yield ""
    yield from _edits(run.breaking["road"], "mIoU", "the change of the share of right pixels")
    yield f"![Error and mIoU by edit type]({names['edits']})"
    yield ""


def _figure(figure: Figure, name: str) -> str:
    if figure.value is None or "error" in name:
        return with_interval(figure)
    if name.startswith("generated less"):
        return with_interval(figure, points=True)
    if name == "generated over original":
        ends = f" ({figure.low:.1f} to {figure.high:.1f})" if figure.low is not None and figure.high is not None else ""
        return f"{figure.value:.1f} times{ends}"
    return f"{figure.value:,.2f}" if figure.value % 1 else f"{figure.value:,.0f}"


def _edits(found: Breaking, figure: str, change: str) -> Iterator[str]:
    lines = [
        (
            row.name,
            "yes" if row.left_out else "no",
            f"{row.cases:,}",
            with_interval(row.generated),
            with_interval(row.excess, points=True),
        )
        for row in found.types
    ]
    yield from table(("edit type", "left out of training", "test cases", figure, "excess over reconstruction"), lines)
    yield ""
    yield (
        f"By what the edit brings in ({change}, beside the reconstruction, corrected for all words together): named as "
        f"hurting are {in_unit(found.left_out_named, 'share')} of the {len(LEFT_OUT)} left-out conditions, and "
        f"{in_unit(found.others_named, 'share')} of the words that are not planted."
    )
    yield ""
    known = [row for row in found.by_word if row.change.value is not None]
    planted = (*LEFT_OUT, *found.taught_wrong)
    yield from _rows("brings in", known[: len(LEFT_OUT) + 3], planted)
    yield ""
    yield (
        "Of the things that were taught wrongly inside the trained conditions, "
        f"{in_unit(found.taught_wrong_named, 'share')} are named as hurting in their table; of all else under trained "
        f"conditions, {in_unit(found.other_things_named, 'share')}."
    )
    yield ""
    yield from _rows("brings in", [row for row in found.by_thing if row.name in found.taught_wrong], planted)
    yield ""


def _rows(head: str, shown: Sequence[SensitivityRow], planted: Sequence[str]) -> list[str]:
    lines = [(row.name, "yes" if row.name in planted else "no", f"{row.n:,}", _change(row), _p(row)) for row in shown]
    return table((head, "planted", "test cases", "change", "p, corrected"), lines)


def _change(row: SensitivityRow) -> str:
    one = row.change
    if one.value is None:
        return f"{CANNOT_TELL}: {one.why}"
    ends = f" ({one.low:+.2f} to {one.high:+.2f})" if one.low is not None and one.high is not None else ""
    return f"{one.value:+.2f}{ends}"


def _p(row: SensitivityRow) -> str:
    return f"{row.p_adjusted:.3f}" if row.p_adjusted is not None else CANNOT_TELL


def _ranking(run: Results) -> Iterator[str]:
    ranking = run.prioritising
    kinds = Counter(ranking.weak.values())
    listed = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    yield "### In which order to look"
    yield ""
    yield (
        "A weak cell is a class under a left-out condition, or in a colour, on which the classifier is wrong on at "
        f"least {100 * WEAK:.0f} % of {run.size.renders} scenes that the renderer itself draws so: {len(ranking.weak)} "
        f"of them{f' ({listed})' if listed else ''}. A cell is found by an image of it on which the classifier is "
        "wrong and which is valid by the truth. “ours” ranks by P(wrong) x P(valid) x novelty, where what is new is a "
        f"class with what the edit brings in; it knows the label of the source, as “{WRONG_FIRST}” and "
        f"“{LABEL_FIRST}” do, and entropy and DeepGini do not. P(valid) is the automatic score by simulated votes on "
        "other sources. “before an image is made” knows the edit and the class alone, and what came of the training "
        "side; it orders the test cases of the other sides."
    )
    yield ""
    for orders, shown, what in (
        (ranking.orders, ranking.shown, "All test cases"),
        (ranking.before, ranking.shown_before, "Test cases of the tuning and the test side"),
    ):
        first = next(iter(orders.values()))
        images = [f"{100 * share:.0f} %: {number:,} images" for share, number in first.images.items()]
        yield f"{what}, with {shown} weak cells to find; weak cells found among the first"
        yield ""
        yield from table(("order", *images, "APFD, of the best"), [_order(one) for one in orders.values()])
        yield ""


def _order(one: Found) -> tuple[str, ...]:
    apfd = f"{one.apfd:.3f}" if one.apfd is not None else CANNOT_TELL
    cells_found = [one.at(share) for share in one.images]
    return (one.order, *(f"{cells:g}" if cells == int(cells) else f"{cells:.1f}" for cells in cells_found), apfd)


def _alike(run: Results) -> str:
    """Return a sentence: how many images were left out as similar to another split, and how many such pairs remain."""
    numbers = " and ".join(f"{run.retraining[one].alike:,} {TITLES[one]} image(s)" for one in FAMILIES)
    both = sum(len(run.retraining[one].shared) for one in FAMILIES)
    return (
        f"images that look like one to measure or to tune with are not learnt from ({numbers} left out); of the images "
        f"used, {both or 'none'} is on two sides, by hash or by look."
    )


def _rq3(run: Results, names: dict[str, str]) -> Iterator[str]:
    yield "## RQ3: what does retraining gain?"
    yield ""
    recipe = run.retraining["object"].recipe
    shifts = " and ".join(f"{look['weather']} {look['time']}s" for look in SHIFTS)
    yield (
        "Sources are divided first (60 % train, 15 % tune, 25 % test), and images made of a source stay on its side; "
        f"{_alike(run)} "
        f"Models are trained on from the weights under test by {recipe.updates} updates, the same number for every arm "
        f"({_recipe(run, 'object')} for the classifier, {_recipe(run, 'road')} for the segmenter; set on small runs "
        "with other scenes than these); "
        "the state is chosen on the tuning side. **No arm learns from weather edits**: they are the unseen edit "
        f"type. The natural shift is drawn by the renderer itself: {shifts}. Generated tests hold the images that are "
        "valid by the truth. “valid” learns from what simulated annotators accept. A segmenter's accuracy is the "
        "share "
        "of right pixels, and its augmentation jitters colours, since masks have to stay in place."
    )
    yield ""
    for family in FAMILIES:
        results = run.retraining[family]
        yield f"### {TITLES[family].capitalize()}"
        yield ""
        yield "Images: " + ", ".join(f"{name} {number:,}" for name, number in results.images.items()) + "."
        yield ""
        lines = []
        for arm in rq3.ARMS:
            cells = [with_interval(results.row(arm, on).accuracy) for on in results.images]
            back = next((with_interval(one.share) for one in results.won_back if one.arm == arm), "-")
            lines.append((f"**{arm}**" if arm == MAIN_ARM else arm, f"{results.examples[arm]:,}", *cells, back))
        yield from table(("arm", "learns from", *results.images, "of the loss won back"), lines)
        yield ""
        if results.miou:
            yield "mIoU, mean over the seeds:"
            yield ""
            lines = [(arm, *(per_cent(results.miou[arm, on]) for on in results.images)) for arm in rq3.ARMS]
            yield from table(("arm", *results.images), lines)
            yield ""
        lines = [
            (on, *(in_unit(results.beside[MAIN_ARM, control, on], "points") for control in CONTROLS))
            for on in results.images
        ]
        yield f"What “{MAIN_ARM}” is right about beside what the controls are:"
        yield ""
        yield from table(("images", *(f"beside “{control}”" for control in CONTROLS)), lines)
        yield ""
    yield f"![Accuracy of every arm on generated images of unseen sources]({names['arms']})"
    yield ""
    yield f"Intervals here are over seeds and sources together; goals are held against “{MAIN_ARM}”, the paper's arm."


def _recipe(run: Results, family: Family) -> str:
    recipe = run.retraining[family].recipe
    name = "SGD" if recipe.optimiser == "sgd" else "Adam"
    return f"{name} at {recipe.learning_rate:g}, batches of {recipe.batch}"


def _chart_edits(run: Results, file: Path) -> None:
    whole, roads = run.breaking["object"].classifier, run.breaking["road"].segmenter
    assert whole is not None and roads is not None
    bars = [_bar("classifier, error: originals", whole.error_original, 2)]
    bars += [_bar("reconstructions", whole.error_reconstructed, 2)]
    bars += [_bar(row.name, row.generated, int(row.left_out)) for row in run.breaking["object"].types]
    bars += [_bar("segmenter, mIoU: originals", roads.miou_original, 2)]
    bars += [_bar("reconstructions", roads.miou_reconstructed, 2)]
    bars += [_bar(row.name, row.generated, int(row.left_out)) for row in run.breaking["road"].types]
    charts.forest("By edit type (left out of training in red)", bars, 0, 1, file)


def _chart_coverage(run: Results, file: Path) -> None:
    bars = [
        _bar(f"{TITLES[family]}: {row.figure.partition(' (')[0]}", row.share, 0 if row.annotators == FLAWLESS else 1)
        for family in FAMILIES
        for row in run.validity[family].coverage
    ]
    charts.forest(
        "Intervals that hold the truth (wanted: 93 to 98 %; in red: simulated annotators who err)", bars, 0, 1, file
    )


def _chart_arms(run: Results, file: Path) -> None:
    bars = [
        _bar(f"{TITLES[family]} {arm}", run.retraining[family].row(arm, rq3.ON_GENERATED).accuracy, place)
        for place, family in enumerate(FAMILIES)
        for arm in rq3.ARMS
        if rq3.ON_GENERATED in run.retraining[family].images
    ]
    charts.forest("Accuracy on generated images of unseen sources", bars, 0, 1, file)


def _bar(name: str, figure: Figure, colour: int) -> Bar:
    return Bar(name, figure.value, figure.low, figure.high, colour)
