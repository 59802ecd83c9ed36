"""The part of the page Evaluate on retraining. Its script fetches it, and follows it while a model is trained. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from core.evaluation_results import BEFORE, FEWEST_SEEDS, ON_GENERATED, ON_ORIGINAL, ORIGINAL, ArmRow
from core.model_sections import in_bytes
from core.types import TaskKind
from core.words import count_of
from services.evaluation.retraining.expected_time import ExpectedTime
from services.evaluation.retraining.jobs import TRAINING, KeptResult, RetrainingChoices
from services.evaluation.retraining.results import HOW_PARTED, OpenedImages, RetrainingResult, sides_words
from services.evaluation.retraining.training import ARM_KEYS, ARM_NAMES, NO_TYPE, SEEDS, ArmKey
from services.evaluation.retraining.weights import ArmWeights
from services.work_queue import WorkView
from ui.evaluate.explained import explained
from ui.evaluate.plots import change_axis, change_plot
from ui.evaluate.words import Place, ends_of, evaluate_address, linked, minus, per_cent, points
from ui.explore.parts import acts, button, head_table, left, more_line, muted, named_row, problem, small, work_line
from ui.markup import Child, Html, el, join
from ui.study.fields import field, number_input, select, tick

PART, TIME = "part-retraining", "retraining-time"
MOST_EARLIER = 5
_ARM_HINTS: Mapping[ArmKey, str] = {
    "augmentation": "the originals, changed by torchvision at each look",
    "reconstructions": "the sources drawn again without an edit",
    "generated": "all test cases of the sources to learn from",
    "valid": "those that votes, or a score learnt from votes, find valid",
    "ranked": "those that are looked at first",
}
_BEHIND: Mapping[TaskKind, str] = {
    "classification": "the images that are still wrong in most of the trainings",
    "segmentation": "the tenth of the images of which fewest pixels are right",
}
_PRESETS = (
    ("short", "a short fine-tuning from its weights: 400 updates"),
    ("paper", "the paper's, from weights of chance: 90 epochs, or 200 of a segmenter"),
)


def retraining_waited_for() -> Html:
    """The place of the part, until its script has fetched it."""
    return el("section", muted("…"), id=PART, class_="card part retraining", data_wait=True)


def retraining_part(
    place: Place,
    choices: RetrainingChoices,
    kept: Sequence[KeptResult],
    work: WorkView | None,
    weights: Sequence[ArmWeights] = (),
    disk: int = 0,
    time: ExpectedTime | None = None,
) -> Html:
    """The whole part. `kept` has the latest first, `weights` are its files, `disk` are bytes of all trainings, and
    `time` is what the form as it comes takes.
    """
    active = work is not None and work.active
    body: list[Child] = [
        el("h2", "What retraining gains"),
        muted(
            "The model is trained further on some of the sources and on what was made of them, and measured on sources "
            "that it has not learnt from. All arms have equal updates: they differ in their images alone."
        ),
        more_line("How sources are parted", [small(words) for words in HOW_PARTED], id="sides"),
    ]
    if work is not None and active:
        body.append(_progress(work))
    elif work is not None and work.state == "failed":
        body.append(problem(work.error))
    elif work is not None and work.state == "cancelled":
        body.append(el("p", "Cancelled: what was trained is kept. Begin again to go on."))
    if kept:
        body += [_result(kept[0], place, weights), _earlier(kept[1:])]
    if choices.problem:
        body.append(el("p", choices.problem, class_="notice", id="not-retrained"))
    elif not active:
        body.append(_form(choices, time, opened=not kept))
    if disk:
        body.append(_disk(disk))
    return el("section", body, id=PART, class_="card part retraining", data_at_work=active)


def _disk(disk: int) -> Html:
    words = (
        f"All trainings of this studio take {in_bytes(disk)}: “python -m evaluation trainings” lists them, and removes "
        "old ones."
    )
    return small(words, id="trainings-disk")


def _progress(work: WorkView) -> Html:
    doing = work.doing
    done = f"{work.done:,} of {work.total:,}{' updates' if doing.startswith(TRAINING) else ''}" if work.total else ""
    words = f"{doing[:1].upper()}{doing[1:]}" if doing else "It waits for its turn."
    told = f"{words}{f': {done}' if done and doing else ''}{left(work.seconds_left)}"
    return el(
        "div",
        work_line(
            el("p", "Stopping: what was trained is kept." if work.stopping else told, id="retraining-progress"),
            button("Cancel", look="s", data_retrain="cancel", data_work=work.id, disabled=work.stopping),
            work.done / work.total if work.total else None,
        ),
        class_="stack wide",
    )


def time_part(time: ExpectedTime | None) -> Html:
    """How long the training takes that a form asks for; empty where that cannot be asked."""
    return el("p", time.words if time is not None else "", id=TIME, class_="mut small", role="status")


def _form(choices: RetrainingChoices, time: ExpectedTime | None, opened: bool) -> Html:
    arms = [tick(f"arm-{key}", ARM_NAMES[key], True, _ARM_HINTS[key], data_arm=key, class_="arm") for key in ARM_KEYS]
    types = [("", "the rarest"), *((one, one) for one in choices.edit_types), (NO_TYPE, "none: learn from all")]
    shifts = [("", "none"), *((f"{number}", words) for number, words in choices.shifts)]
    hint = f"differ by chance: {FEWEST_SEEDS} at least for an interval"
    body = el(
        "form",
        field("preset", "How", select("preset", _PRESETS, "short"), {}),
        el("fieldset", el("legend", f"Arms, beside “{ORIGINAL}”"), el("div", arms, class_="arms"), _wrong("arms")),
        el(
            "div",
            field("seeds", "Trainings an arm", number_input("seeds", SEEDS), {}, hint),
            field("unseen", "Edit type that no arm learns from", select("unseen", types, ""), {}),
            field("shift", "Measured with too: a natural shift", select("shift", shifts, ""), {})
            if choices.shifts
            else None,
            class_="fields",
        ),
        more_line(
            "More",
            el(
                "div",
                field("updates", "Updates", number_input("updates", 0), {}, "0: as above"),
                field("batch", "Images of an update", number_input("batch", 0), {}, "0: as above"),
                field("rate", "Learning rate", number_input("rate", 0), {}, "0: as above"),
                field(
                    "augmentation",
                    "Augmentation",
                    select("augmentation", (("randaugment", "RandAugment"), ("augmix", "AugMix")), "randaugment"),
                    {},
                ),
                field("split_seed", "Seed of the sides", number_input("split_seed", 0), {}, "another one: other sides"),
                class_="fields",
            ),
        ),
        el("p", "", class_="wrong", data_problem="retraining", role="alert"),
        acts(el("button", "Begin to train", type="submit", class_="btn p", id="begin-retraining"), time_part(time)),
        id="retraining-form",
        class_="model-form",
    )
    return more_line("Train it further", body, open=opened, id="retrain")


def _wrong(name: str) -> Html:
    return el("p", "", class_="wrong", data_problem=name, role="alert")


def _result(kept: KeptResult, place: Place, weights: Sequence[ArmWeights]) -> Html:
    found = kept.found
    return el(
        "div",
        el("p", kept.note, class_="notice") if kept.note else None,
        el("p", minus(found.answer), class_="said", id="retraining-answer"),
        _table(found, lambda one: _images(place, kept, one)),
        small(sides_words(found)),
        _left_out(found),
        small(
            _when(kept),
            " · ",
            el("a", "Markdown", href=place.to("retraining/markdown"), download=True),
            " · ",
            el("a", "data", href=place.to("retraining/json"), download=True),
        ),
        _weights(kept, place, weights) if weights else None,
        class_="result",
    )


def _weights(kept: KeptResult, place: Place, weights: Sequence[ArmWeights]) -> Html:
    """The weights that can be taken away."""
    lines = []
    for one in weights:
        to = evaluate_address("retraining/weights", **_alone(place), kept=kept.number, arm=one.arm)
        words = f"seed {one.seed + 1}, {per_cent(one.score)} right on the tuning images, {in_bytes(one.size)}"
        link = el("a", one.arm, href=to, download=True, data_weights=one.arm)
        lines.append(el("li", link, el("span", f" {words}", class_="mut")))
    hint = (
        "Of each arm the training that is best on the tuning images, as safetensors. “Trained here”, where you choose "
        "a model, takes each as a model under test. A downloaded file is a checkpoint file for the studio; one of "
        "transformers belongs into the folder of its model, as model.safetensors."
    )
    inside = [small(hint), el("ul", lines, class_="small")]
    return el("details", el("summary", "Weights"), inside, class_="more-line weights", id="retraining-weights")


def _images(place: Place, kept: KeptResult, one: OpenedImages) -> str:
    """Where the images behind a number are opened."""
    return evaluate_address("retraining/images", **_alone(place), kept=kept.number, on=one.set, arm=one.arm)


def _alone(place: Place) -> dict[str, Any]:
    """What an address says of a place without what is compared with it."""
    return asdict(replace(place, beside="", other=None))


def _table(found: RetrainingResult, address: Callable[[OpenedImages], str]) -> Html:
    def link(words: str, on: str, arm: str = "") -> Child:
        """The words, as a link where images are kept behind them."""
        opens = found.opens(on, arm)
        if opens is None:
            alone = not arm and any(one.set == on for one in found.opened)
            return el("span", words, title="None of these images is in the gallery.") if alone else words
        return linked(words, address(opens), _opens_words(opens, found.kind))

    sets = [one.name for one in found.sets]
    gains = {row.arm: row.gain for row in found.rows if row.set == ON_GENERATED and row.arm not in (ORIGINAL, BEFORE)}
    won = {one.arm: one.share for one in found.won_back}
    images = {one.name: f"{one.images:,}" for one in found.arms}
    miou = {(one.arm, one.set): one.value for one in found.miou}
    axis = change_axis(gains.values())
    head = [
        el("th", "arm", scope="col"),
        el("th", "learns from", scope="col", class_="n"),
        [
            el(
                "th",
                f"on {one.name}",
                el("small", link(count_of(one.images, "image"), one.name)),
                scope="col",
                class_="n",
            )
            for one in found.sets
        ],
        el("th", explained("won back"), scope="col", class_="n"),
        el("th", explained(f"gain on {ON_GENERATED}, beside “{ORIGINAL}”", "gain"), scope="col", class_="plot-cell"),
    ]
    body = []
    for arm in (BEFORE, *images):
        rows = [found.row(arm, name) for name in sets]
        share = won.get(arm)
        lost = (
            [minus(per_cent(share.value)), el("small", minus(ends_of(share)))]
            if share is not None and share.value is not None
            else el("span", "–", title=share.why if share is not None else None)
        )
        body.append(
            named_row(
                arm,
                el("td", images.get(arm, "–"), class_="n"),
                [_cell(row, miou.get((arm, name)), link) for row, name in zip(rows, sets, strict=True)],
                el("td", lost, class_="n"),
                el("td", change_plot([gains[arm]], axis) if arm in gains else None, class_="plot-cell"),
                class_="main" if arm == found.main else None,
            )
        )
    table = head_table(head, body)
    what = "pixels" if found.kind == "segmentation" else "images"
    untold = next((f" Won back: {share.why}." for share in won.values() if share.value is None), "")
    caption = (
        f"Share of {what} that it is right about, each source with the same weight; below it points beside "
        f"“{ORIGINAL}”, with 95 % intervals.{untold}"
    )
    if found.opened:
        caption += f" A number opens {_BEHIND[found.kind]}; of originals, the test cases that were made of them."
    return join(el("div", table, class_="arms-table"), small(caption))


def _opens_words(one: OpenedImages, kind: TaskKind) -> str:
    """What a link opens, with how many of them where it is not all."""
    what = count_of(one.images, "image")
    if one.arm:
        wrong = f"that most trainings are wrong about: {what}" if one.arm != BEFORE else f"that it gets wrong: {what}"
        lowest = f"of which fewest pixels are right, a tenth of all: {what}"
        what = f"The images {lowest if kind == 'segmentation' else wrong}"
    made = "; opens the test cases made of them" if one.set == ON_ORIGINAL else ""
    some = "" if one.shown == one.images else f"; opens {one.shown:,} of them"
    return f"{what}{made}{some}"


def _cell(row: ArmRow | None, miou: float | None, link: Callable[[str, str, str], Child]) -> Html:
    if row is None:
        return el("td", "–", class_="n")
    more = ends_of(row.accuracy) if row.arm == ORIGINAL else f"{points(row.gain.value)} ({ends_of(row.gain, True)})"
    of_classes = el("small", f"mIoU {per_cent(miou)}") if miou is not None else None
    value = link(per_cent(row.accuracy.value), row.set, row.arm)
    return el("td", el("b", value), el("small", more), of_classes, class_="n")


def _left_out(found: RetrainingResult) -> Html | None:
    lines = [*(f"{one.name} is left out: {one.why}" for one in found.left_out), *found.notes]
    return el("ul", [el("li", line) for line in lines], class_="small notes") if lines else None


def _earlier(kept: Sequence[KeptResult]) -> Html | None:
    if not kept:
        return None
    lines = [el("li", el("b", _when(one)), el("span", minus(one.found.answer))) for one in kept[:MOST_EARLIER]]
    return more_line(f"Earlier ({len(kept)})", el("ul", lines, class_="small"))


def _when(kept: KeptResult) -> str:
    found, recipe = kept.found, kept.found.recipe
    at = datetime.fromisoformat(kept.created).strftime("%Y-%m-%d %H:%M UTC")
    seeds = f"{count_of(found.seeds, 'training')} an arm"
    return f"{at}, {recipe.name}, {seeds}, {recipe.updates:,} updates of {count_of(recipe.batch, 'image')}"
