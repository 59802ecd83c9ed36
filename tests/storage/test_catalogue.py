"""The catalogue of test cases follows every change. Its filters, orders, pages and counts agree with a plain search."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cli.storage import main as storage_command
from core.catalogue import CatalogueEntry, Count, Order, PageKey
from core.errors import UserError
from core.image_filter import Between, ImageFilter, ScoreBand
from core.lineage import TestCase
from core.predictions import Guess, Prediction, encode_map
from core.stored_runs import Verdict
from core.studies import NewItem
from core.types import Caption, Check, CounterfactualCaption, Edit, ReviewDecision, StageValue, Task, Trace
from services.studio import Studio
from storage.curation.decisions import Target
from storage.curation.entry_sets import (
    beyond,
    bin_of,
    bin_span,
    changed_set,
    chunk_bits,
    common,
    entries_of,
    from_place,
    of_entries,
    of_rows,
    size,
)
from storage.damage import catalogue_faults
from storage.workspace import DATABASE, Workspace
from tests.support.cases import LINEAGE
from tests.support.study_desk import crew, started, vote
from tests.support.workspaces import workspace_in

LABELS = ("bird", "Möwe", "a “quoted” boat", "owl")
MODELS = ("one", "two")
ROAD = Task("segmentation", protected=("road", "car"))
EDITS = (
    Edit("sunny", "snowy", "weather"),
    Edit("by day", "at night", "time of day"),
    Edit("red", "blue", "attribute"),
    Edit("sunny", "foggy", "weather"),
)
CHECKS = ("label seen", "edges kept")
SORTS = [Order(), Order("oldest")] + [Order(*held, falling) for falling in (False, True)
         for held in (("check", "label seen"), ("check", "nobody made it"), ("reviewed", ""))]  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def picture(shade: int) -> Image.Image:
    return Image.new("RGB", (8, 8), (shade, 20, 30))


def case(fate: random.Random, shade: int, task: Task | None = None) -> TestCase:
    edits = tuple(fate.sample(EDITS, fate.randrange(3)))
    text = " ".join(
        ("A", fate.choice(("red", "blue")), fate.choice(("bird", "boats")), *(one.alternative for one in edits))
    )
    checks = [
        Check(name, fate.choice((True, False, None)), fate.choice((None, round(fate.uniform(-1, 1), 2), 0.3)))
        for name in CHECKS
    ]
    lineage = replace(
        LINEAGE, counterfactual=CounterfactualCaption(text, edits), method=fate.choice(("a", "b")), task=task
    )
    return TestCase(picture(shade), lineage, checks=tuple(fate.sample(checks, fate.randrange(3))))


class Busy:
    """Changes the catalogue at random in every possible way."""

    def __init__(self, workspace: Workspace, seed: int) -> None:
        self.workspace, self.fate = workspace, random.Random(seed)
        self.runs: list[str] = []
        self.cases: list[int] = []
        self.studies: list[str] = []

    def step(self) -> None:
        fate, workspace, runs = self.fate, self.workspace, self.workspace.runs
        run = fate.choice(self.runs) if self.runs else ""
        what = fate.randrange(15) if self.cases else 0
        if what == 0:
            task = ROAD if fate.random() < 0.4 else Task("classification", fate.choice(LABELS))
            self.runs.append(runs.create(picture(200 + fate.randrange(4)), task, "demo", f"Run {len(self.runs)}", {}))
            self.cases.append(workspace.test_cases.append(self.runs[-1], None, case(fate, fate.randrange(60))))
        elif what in (1, 2, 3):
            self.cases.append(workspace.test_cases.append(run, None, case(fate, fate.randrange(60))))
        elif what in (4, 5):
            verdicts: tuple[Verdict, ...] = ("accepted", "rejected", "open")
            workspace.test_cases.review(fate.choice(self.cases), fate.choice(verdicts), "why")
        elif what == 6:
            fate.choice((runs.remove, runs.restore))(run)
        elif what == 7:
            value: StageValue[Any] = StageValue(Caption(f"The {fate.choice(LABELS)} sings."), Trace("model"), "k")
            runs.append_value(run, "caption", value)
        elif what == 8:
            steps = workspace.steps.of(run)
            if steps.next_undo is not None:
                workspace.steps.take(run, "undo", steps.next_undo.key)
        elif what == 9:
            steps = workspace.steps.of(run)
            if steps.next_redo is not None:
                workspace.steps.take(run, "redo", steps.next_redo.key)
        elif what in (10, 11):
            shade = fate.choice((fate.randrange(60), 200 + fate.randrange(4)))
            self.read(shade, fate.choice(MODELS))
        elif what == 12:
            workspace.decisions.tag(
                Target(fate.sample(self.cases, 1)), fate.choice(("good", "odd")), fate.random() < 0.6
            )
        elif what == 13:
            self.study()
        else:
            runs.set_mask(run, Image.new("L", (8, 8), fate.randrange(2)), {0: "road", 1: "car"})

    def read(self, shade: int, model: str) -> None:
        sha = self.workspace.images.add(picture(shade))
        top = (Guess(self.fate.choice(LABELS), 0.5),) if self.fate.random() < 0.8 else ()
        seen = Prediction("classification", model, top)
        if self.fate.random() < 0.4:
            seen = Prediction("segmentation", model, classes=("road",), class_map=encode_map(Image.new("L", (8, 8))))
        self.workspace.predictions.append(sha, model, seen)

    def study(self) -> None:
        studies, chance = self.workspace.studies, self.fate.random()
        if chance < 0.4 or not self.studies:
            self.studies.append(started(self.workspace, items=1, votes=1, consensus=1))
            held = [self.workspace.test_cases.get(number) for number in self.fate.sample(self.cases, 1)]
            new = [NewItem(one.image_sha, test_case=one.id, label="bird") for one in held]
            studies.add_items(self.studies[-1], new)
            draft = studies.create("Draft", studies.get(self.studies[-1]).rules)
            ids = studies.add_items(draft, new)
            if chance < 0.2:
                studies.remove_items(draft, ids)
        else:
            study = self.fate.choice(self.studies)
            (worker,) = crew(studies, study, 1)
            if (given := studies.assignments.claim(study, worker, "item")) is not None:
                vote(studies, given, self.fate.choice(("yes", "no")), key=f"{worker}")


def faults(workspace: Workspace) -> tuple[str, ...]:
    return catalogue_faults(workspace.folder / DATABASE)


def everything(workspace: Workspace) -> list[CatalogueEntry]:
    return list(workspace.catalogue.page(limit=10_000).entries)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_the_catalogue_follows_whatever_is_saved(workspace: Workspace, seed: int) -> None:
    busy = Busy(workspace, seed)
    for number in range(400):
        busy.step()
        if number % 50 == 49:
            assert faults(workspace) == ()
    listed = workspace.runs.search(1000)
    assert {entry.run for entry in everything(workspace)} <= {run.id for run in listed}
    assert (
        sum(run.test_cases for run in listed) == len(everything(workspace)) == workspace.catalogue.count().number > 50
    )


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with workspace_in(tmp_path_factory.mktemp("catalogue")) as workspace:
        busy = Busy(workspace, 9)
        for _ in range(500):
            busy.step()
        yield workspace


FILTERS: list[tuple[dict[str, Any], Any]] = [
    ({"facets": {"class": ("Möwe", "owl")}}, lambda one: {"Möwe", "owl"} & {*one.classes}),
    ({"facets": {"kind": ("segmentation",), "class": ("car",)}}, lambda one: "car" in one.classes),
    ({"facets": {"edit type": ("weather",), "review": ("accepted", "open")}},
     lambda one: "weather" in {edit.edit_type for edit in one.edits} and one.verdict != "rejected"),
    ({"without": {"review": ("rejected",)}, "facets": {"method": ("a",)}},
     lambda one: one.verdict != "rejected" and one.method == "a"),
    ({"facets": {"edits": ("2",)}}, lambda one: len(one.edits) == 2),
    ({"facets": {"weather": ("snowy",)}},
     lambda one: [edit.alternative for edit in one.edits if edit.edit_type == "weather"][:1] == ["snowy"]),
    ({"facets": {"tag": ("good",)}}, lambda one: "good" in one.tags),
    ({"facets": {"study": ("valid", "undecided")}}, lambda one: {"valid", "undecided"} & {*one.study_outcomes}),
    ({"facets": {"class": ("nobody",)}}, lambda one: False),
    ({"checks": {"label seen": ("passed",)}},
     lambda one: any(check.name == "label seen" and check.passed for check in one.checks)),
    ({"models": {"one": ("newly wrong", "wrong")}}, lambda one: one.standings.get("one") in ("newly wrong", "wrong")),
    ({"models": {"two": ("unread",)}}, lambda one: "two" not in one.standings),
    *(({"between": (Between("label seen", low, high),)},
       lambda one, low=low, high=high: low <= figure(one, "label seen") <= high)
      for low, high in ((0.1, 0.5), (0.3, 0.3), (-1, 0.29), (0.305, 0.31), (0.5, 0.1), (-1000, 1000))),
    ({"text": "boat"}, lambda one: "boats" in one.counterfactual or "boat" in one.caption),
    ({"text": "SNOWY bird"}, lambda one: has_word(one, "snowy") and has_word(one, "bird")),
    ({"edited": "night"}, lambda one: EDITS[1] in one.edits),
    ({"text": "red", "facets": {"review": ("open",)}}, lambda one: one.verdict == "open" and has_word(one, "red")),
]  # fmt: skip


def figure(one: CatalogueEntry, name: str) -> float:
    return next((check.value for check in one.checks if check.name == name and check.value is not None), float("nan"))


def has_word(one: CatalogueEntry, word: str) -> bool:
    edits = " ".join(f"{edit.keyword} {edit.alternative}" for edit in one.edits)
    return word in f"{one.caption} {one.counterfactual} {edits}".replace("birds", "bird").casefold()


@pytest.mark.slow
@pytest.mark.parametrize(("said", "fits"), FILTERS, ids=lambda held: str(held) if isinstance(held, dict) else "")
def test_a_filter_finds_what_a_look_at_every_image_finds(filled: Workspace, said: dict[str, Any], fits: Any) -> None:
    wanted, catalogue = ImageFilter(**said), filled.catalogue
    expected = [one for one in everything(filled) if fits(one)]
    found = catalogue.page(wanted, limit=10_000)
    assert [one.id for one in found.entries] == [one.id for one in expected] and not found.more
    assert catalogue.ids(wanted) == tuple(sorted(one.id for one in expected))
    assert catalogue.count(wanted).number == len(expected)
    runs = dict.fromkeys(one.run for one in reversed(expected))
    assert catalogue.runs(wanted) == tuple(runs)
    bars = Counter(figure(one, "label seen") for one in expected)
    figures = {value: number for value, number in bars.items() if value == value}
    told = catalogue.histogram("label seen", wanted)
    assert sum(bar.entries for bar in told) == sum(figures.values())
    assert all(any(bar.low - 1e-9 <= value < bar.high + 1e-9 for bar in told) for value in figures)
    facets = catalogue.facets(replace(wanted, facets={}))
    plain = [one for one in everything(filled) if one.id in catalogue.ids(replace(wanted, facets={}))]
    assert {name: n for name, n in facets["class"].items() if n} == Counter(c for one in plain for c in one.classes)
    assert {name: n for name, n in facets["review"].items() if n} == Counter(one.verdict for one in plain)


@pytest.mark.slow
def test_a_count_by_words_says_where_it_stops(filled: Workspace) -> None:
    wanted = ImageFilter(text="a")
    assert filled.catalogue.count(wanted, most=3) == Count(3, exact=False)
    assert filled.catalogue.count(wanted) == Count(len(everything(filled)))
    assert filled.catalogue.count(most=3) == filled.catalogue.count(), "without words it is always exact"


@pytest.mark.slow
def test_counts_of_a_facet_leave_its_own_choice_out(filled: Workspace) -> None:
    wanted = ImageFilter(facets={"review": ("accepted",), "method": ("a",)})
    plain = everything(filled)
    found = filled.catalogue.facets(wanted, ("review", "method", "kind"))
    assert {k: n for k, n in found["review"].items() if n} == Counter(o.verdict for o in plain if o.method == "a")
    assert {k: n for k, n in found["method"].items() if n} == Counter(
        o.method for o in plain if o.verdict == "accepted"
    )
    both = [one for one in plain if one.method == "a" and one.verdict == "accepted"]
    assert {k: n for k, n in found["kind"].items() if n} == Counter(one.kind for one in both)


@pytest.mark.slow
def test_coverage_counts_every_cell(filled: Workspace) -> None:
    plain, wanted = everything(filled), Counter[tuple[str, str, str]]()
    stands = Counter[tuple[str, str, str, str]]()
    for one in plain:
        for name in one.classes or ("",):
            for kind in dict.fromkeys(edit.edit_type for edit in one.edits) or ("",):
                wanted[name, kind, one.verdict] += 1
                stands.update((name, kind, model, standing) for model, standing in one.standings.items())
    cells = filled.catalogue.coverage()
    assert {(c.line, c.place, k): n for c in cells for k, n in c.reviews.items()} == wanted
    assert {
        (c.line, c.place, m, k): n for c in cells for m, held in c.models.items() for k, n in held.items()
    } == stands
    weather = filled.catalogue.coverage("weather x time of day")
    assert sum(cell.entries for cell in weather) == sum(
        any(edit.edit_type in ("weather", "time of day") for edit in one.edits) for one in plain
    )


def test_a_filter_says_in_words_what_it_means() -> None:
    whole = ImageFilter(
        facets={"class": ("bird", "dog"), "review": ("",)},
        without={"tag": ("odd",)},
        checks={"edges kept": ("failed", "cannot tell")},
        models={"resnet50": ("newly wrong",)},
        between=(Between("edit shows", 0.25, 1.0),),
        scores=(ScoreBand(0.5), ScoreBand(0.25, 0.5), None),
        source="0123456789",
        text="a boat",
        entries=(3, 4),
    )
    assert whole.words == (
        "class: bird or dog; review: none; not tag: odd; edges kept: failed or cannot tell; resnet50: newly wrong; "
        "edit shows: 0.25 to 1; validity score from 0.5 or validity score from 0.25 below 0.5 or validity score none; "
        "source: 01234567; captions: a boat; 2 images of a list"
    )
    assert ImageFilter().words == ""


@pytest.mark.slow
@pytest.mark.parametrize("order", SORTS, ids=lambda order: f"{order.sort} {order.check} {order.falling}")
@pytest.mark.parametrize("wanted", [ImageFilter(), ImageFilter(facets={"method": ("a",)}, text="a")])
def test_pages_meet_every_image_once_in_every_order(
    filled: Workspace, order: Order, wanted: ImageFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = filled.catalogue
    whole = [one for one in everything(filled) if wanted == ImageFilter() or one.method == "a"]
    assert sorted(sort_key(one, order) for one in whole)
    expected = [one.id for one in sorted(whole, key=lambda one: sort_key(one, order))]
    for few in (1000, 0):  # both ways to find a page: image by image, and in the order of all
        monkeypatch.setattr("storage.curation.selection._FEW", few)
        forwards: list[CatalogueEntry] = []
        while (page := catalogue.page(wanted, order, 7, after=forwards[-1].key if forwards else None)).entries:
            forwards += page.entries
            assert page.more == (len(forwards) < len(expected))
        assert [one.id for one in forwards] == expected
        half = len(expected) // 2
        page = catalogue.page(wanted, order, 7, PageKey.read(forwards[half - 1].key.text))
        assert [one.id for one in page.entries] == expected[half : half + 7]
        for at in (0, 1, len(expected) // 2, len(expected) - 1):
            assert [one.id for one in catalogue.page(wanted, order, 5, at=at).entries] == expected[at : at + 5]
        assert catalogue.page(wanted, order, at=len(expected)).entries == ()


@pytest.mark.slow
@pytest.mark.parametrize("falling", [False, True])
def test_many_of_one_figure_at_the_end_of_a_bin_keep_their_places(
    workspace: Workspace, falling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.curation.selection._FEW", 0)
    run = workspace.runs.create(picture(1), Task("classification", "bird"), "demo", "A bird", {})
    figures = [0.28, 0.3, 0.30000000000000004, 0.3 - 1e-12, 0.3 + 1e-12, 0.32, 0.1] * 6
    made = [TestCase(picture(2), LINEAGE, checks=(Check("c", True, figure),)) for figure in figures]
    cases = workspace.test_cases.extend(run, None, made)
    order = Order("check", "c", falling)
    expected = sorted(zip(figures, cases, strict=True), reverse=falling)
    pages = [workspace.catalogue.page(order=order, limit=1, at=at).entries for at in range(len(cases))]
    assert [page[0].test_case for page in pages] == [number for _, number in expected]


def sort_key(one: CatalogueEntry, order: Order) -> tuple[Any, ...]:
    if order.sort in ("newest", "oldest"):
        return (-one.id if order.sort == "newest" else one.id,)
    held = figure(one, order.check) if order.sort == "check" else review_number(one)
    sign = -1 if order.falling else 1
    return (0, sign * held, sign * one.id) if held == held else (1, -one.id, 0)


def review_number(one: CatalogueEntry) -> float:
    return one.reviewed.timestamp() if one.reviewed is not None else float("nan")


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [Order(), Order("oldest"), Order("source"), Order("check", "label seen"), Order("reviewed")]
)
def test_pages_meet_what_was_there_once_while_images_are_added(workspace: Workspace, order: Order) -> None:
    busy = Busy(workspace, 4)
    for _ in range(120):
        busy.step()
    for run in busy.runs:
        workspace.runs.restore(run)
    there = {one.id for one in everything(workspace)}
    met: list[int] = []
    key: PageKey | None = None
    while (page := workspace.catalogue.page(order=order, limit=5, after=key)).entries:
        met += [one.id for one in page.entries]
        key = page.entries[-1].key
        for _ in range(2):
            run = busy.fate.choice(busy.runs)
            workspace.test_cases.append(run, None, case(busy.fate, busy.fate.randrange(60)))
        if len(met) > 2 * len(there):
            break  # more images are added than read
    assert there <= {*met} or order.sort != "newest"
    assert max(Counter(met).values()) == 1


HOSTILE = ['"', '""', "'", "AND", "OR NOT", "-", "*", "bird*", "bird -", '"bird', "NEAR(bird, 2)", "caption:bird",
           "(", ")", "\0", "{edited} : x", "^bird", "bird OR boat", "\ud800", "%", "\\", ";--", "É" * 500]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_looked_for_as_it_is(filled: Workspace, text: str) -> None:
    for wanted in (ImageFilter(text=text), ImageFilter(edited=text), ImageFilter(text=f"red {text}")):
        found = filled.catalogue.page(wanted, limit=10_000).entries
        assert filled.catalogue.count(wanted).number == len(found)
        assert text not in ("AND", "OR NOT") or not found, "no caption has these words"
    if text in ('"', "-", "*", "("):
        assert filled.catalogue.count(ImageFilter(text=text)).number == 0, "nothing can be found by it"
    assert filled.catalogue.count(ImageFilter(text="  ")) == filled.catalogue.count()


def test_text_finds_endings_accents_and_edited_captions(workspace: Workspace) -> None:
    run = workspace.runs.create(picture(1), Task("classification", "bird"), "demo", "A bird", {})
    workspace.runs.append_value(run, "caption", StageValue(Caption("Two gulls on a café."), Trace("model"), "k"))
    workspace.test_cases.append(run, None, case(random.Random(1), 2))

    def finds(text: str) -> bool:
        return workspace.catalogue.count(ImageFilter(text=text)).number == 1

    assert finds("gull") and finds("CAFE") and finds("gulls cafe") and not finds("heron")
    workspace.runs.append_value(run, "caption", StageValue(Caption("A heron."), Trace("person"), "k"))
    assert finds("heron") and not finds("gull")
    undone = workspace.steps.of(run).next_undo
    assert undone is not None
    workspace.steps.take(run, "undo", undone.key)
    assert finds("gull") and not finds("heron") and faults(workspace) == ()


def test_a_write_that_is_undone_leaves_the_catalogue_alone(workspace: Workspace) -> None:
    run = workspace.runs.create(picture(1), Task("classification", "bird"), "demo", "A bird", {})
    with pytest.raises(UserError, match="1001"):
        workspace.test_cases.extend(run, None, [case(random.Random(1), 2)], [ReviewDecision("rejected", "x" * 1001)])
    assert workspace.catalogue.count().number == 0 and faults(workspace) == ()


def test_a_catalogue_that_is_wrong_is_told(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    run = workspace.runs.create(picture(1), Task("classification", "bird"), "demo", "A bird", {})
    workspace.test_cases.append(run, None, case(random.Random(1), 2))
    folder = str(workspace.folder)
    assert storage_command(["check", folder]) == 0
    assert "the database, the catalogue and all images are right" in capsys.readouterr().out
    with closing(sqlite3.connect(workspace.folder / DATABASE)) as connection, connection:
        connection.execute("UPDATE catalogue_values SET entries = 7 WHERE facet = 'class'")
        connection.execute(
            "DELETE FROM catalogue_sets WHERE id >> 24 = (SELECT id FROM catalogue_values WHERE facet = 'kind')"
        )
    assert storage_command(["check", folder]) == 1
    told = capsys.readouterr().out
    assert "count of ('class', 'bird'): (7,) is kept, (1,) follows" in told
    assert "The set of kind 'classification' is wrong about entries [1]." in told
    assert storage_command(["check", str(workspace.folder / "nowhere")]) == 2


@pytest.mark.slow
def test_scripts_list_search_and_count_test_cases(studio: Studio) -> None:
    busy = Busy(studio.workspace, 5)
    for _ in range(300):
        busy.step()

    def ask(name: str, **fields: Any) -> Any:
        return studio.commands.send(name, fields)

    plain = everything(studio.workspace)
    found: list[Any] = []
    page = ask("list-test-cases", limit=10)
    while page["next"]:
        found += page["test_cases"]
        page = ask("list-test-cases", limit=10, after=page["next"])
    found += page["test_cases"]
    assert [one["entry"] for one in found] == [one.id for one in plain]
    assert all(one["run_name"] and one["source"] and one["review"] for one in found)
    some = {"filter": {"review": "open", "edit type": "weather", "text": "bird"}}
    fitting = [one.id for one in plain if one.verdict == "open" and has_word(one, "bird")
               and any(edit.edit_type == "weather" for edit in one.edits)]  # fmt: skip
    assert [one["entry"] for one in ask("list-test-cases", **some)["test_cases"]] == fitting != []
    counted = ask("count-test-cases", **some)
    assert (counted["count"], counted["exact"]) == (len(fitting), True)
    assert counted["facets"]["review"]["open"] == len(fitting) and set(counted["models"]) == set(MODELS)
    cells = ask("coverage", grid="weather x time of day")["cells"]
    assert sum(cell["count"] for cell in cells) == sum(
        cell["reviews"][name] for cell in cells for name in cell["reviews"]
    )
    low = ask("list-test-cases", filter="range=label seen:0.3:1", order="check:label seen", limit=200)["test_cases"]
    bars = ask("check-histogram", check="label seen", filter="range=label seen:0.3:1")["bars"]
    assert sum(bar["count"] for bar in bars) == len(low) > 3
    cannot = ask("count-test-cases", filter="model=one:cannot tell")["count"]
    assert cannot == sum(one.standings.get("one") == "cannot tell" for one in plain) > 0
    for field, fields in (
        ("after", {"after": "x"}), ("order", {"order": "check"}), ("filter", {"filter": "check=passed"}),
        ("limit", {"limit": 0}), ("filter", {"filter": {"review": "perhaps"}}),
    ):  # fmt: skip
        with pytest.raises(UserError) as caught:
            ask("list-test-cases", **fields)
        assert caught.value.field == field
    with pytest.raises(UserError, match="“check” is missing"):
        ask("check-histogram")


def test_sets_are_the_same_in_few_places_and_in_many() -> None:
    fate = random.Random(1)
    for most in (40, 3_000):  # stored as a list of places, and as bits
        held: set[int] = set()
        stored = b""
        for _ in range(most // 4):
            changes = {fate.randrange(16_384): fate.random() < 0.8 for _ in range(8)}
            stored = changed_set(stored, changes)
            for place, put in changes.items():
                (held.add if put else held.discard)(place)
        assert entries_of(chunk_bits(stored)).tolist() == sorted(held)
        others = fate.sample(range(9 * 16_384), 30_000)
        bits = of_entries(others, 9)
        for chunk in (0, 8):
            inside = {place + chunk * 16_384 for place in held}
            assert entries_of(of_rows([(chunk, stored)], 9)).tolist() == sorted(inside)
            assert common([(chunk, stored)], bits) == len(inside & set(others))
        assert common([(12, stored)], bits) == 0, "it lies behind the end"
    numbers = sorted(others)
    assert size(bits) == 30_000 and from_place(bits, 30_000, False) is None
    assert [from_place(bits, at, False) for at in (0, 17, 29_999)] == [numbers[0], numbers[17], numbers[-1]]
    assert [from_place(bits, at, True) for at in (0, 17, 29_999)] == [numbers[-1], numbers[-18], numbers[0]]
    assert list(beyond(bits, numbers[9], True)) == numbers[8::-1]
    assert list(beyond(bits, numbers[-9], False)) == numbers[-8:]


def test_bins_never_fall_and_hold_what_stands_between_their_ends() -> None:
    fate = random.Random(2)
    numbers = sorted([fate.uniform(-2, 2) for _ in range(2_000)] + [place / 50 for place in range(-60, 60)])
    numbers = [-1e9, -1000.0, *numbers, 1e300]
    bins = [bin_of(number) for number in numbers]
    assert bins == sorted(bins)
    for number, place in zip(numbers, bins, strict=True):
        low, high = bin_span(place)
        assert low <= number <= high
