"""Decisions about images: in bulk, undone, by author, relabelled, in review orders, and repeated without saying so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.catalogue import CatalogueEntry, Order, PageKey
from core.errors import UserError
from core.image_filter import ImageFilter
from core.images import png_of
from core.lineage import TestCase
from core.predictions import Guess, Prediction
from core.stored_runs import Verdict
from core.types import Task
from services.commands import Commands
from services.curation.decisions import CurationDecisions
from services.studio import Studio
from storage.curation.decisions import Target
from storage.curation.imports import NewImage
from storage.workspace import Workspace
from tests.storage.test_catalogue import Busy, everything, faults, picture
from tests.support.cases import LINEAGE
from tests.support.workspaces import workspace_in

BIRD = Task("classification", "bird")
ROAD = Task("segmentation", protected=("road", "car"))
INFORMATION, SOURCE = Order("information"), Order("source")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def birds(workspace: Workspace, number: int, task: Task = BIRD, shade: int = 200) -> list[int]:
    """Create a run of this number of images and return their numbers in the catalogue."""
    run = workspace.runs.create(picture(shade), task, "demo", "Birds", {})
    before = set(workspace.catalogue.ids())
    workspace.test_cases.extend(run, None, (TestCase(picture(n % 50), LINEAGE) for n in range(number)))
    return sorted(set(workspace.catalogue.ids()) - before)


def verdicts(workspace: Workspace) -> dict[int, tuple[str, str, str]]:
    return {one.id: (one.verdict, one.reason, one.reviewer) for one in everything(workspace)}


def ask(studio: Studio, name: str, **fields: Any) -> Any:
    return studio.commands.send(name, fields)


# In bulk, and undone


@pytest.mark.slow
def test_a_thousand_are_decided_and_taken_back_as_one_thing(studio: Studio) -> None:
    workspace = studio.workspace
    entries = birds(workspace, 1000)
    ask(studio, "decide", entries=entries[:3], verdict="rejected", reason="blurred", author="Ada")
    were = verdicts(workspace)
    done = ask(studio, "decide", filter="", expected=1000, verdict="accepted", author="Bo")
    assert (done.changed, done.same, done.said) == (1000, 0, "Accepted 1,000 images.")
    assert set(verdicts(workspace).values()) == {("accepted", "", "Bo")}
    (line,) = workspace.runs.search()
    assert line.accepted == 1000 and faults(workspace) == ()
    back = ask(studio, "undo-decision", author="Bo")
    assert back.said == "Taken back: the verdict “accepted” on 1,000 images." and back.changed == 1000
    assert verdicts(workspace) == were, "also who had said it"
    again = ask(studio, "undo-decision", decision=back.decision, author="Bo")
    assert again.said.startswith("Done again: ") and workspace.runs.search()[0].accepted == 1000
    assert set(verdicts(workspace).values()) == {("accepted", "", "Bo")} and faults(workspace) == ()


def test_a_view_that_has_another_number_by_now_is_left_alone(studio: Studio) -> None:
    entries = birds(studio.workspace, 3)
    with pytest.raises(UserError, match="the filter now finds 3 images, not 2") as caught:
        ask(studio, "decide", filter="class=bird", expected=2, verdict="accepted")
    assert caught.value.field == "expected"
    assert {one.verdict for one in everything(studio.workspace)} == {"open"}
    assert ask(studio, "decide", filter="class=bird", expected=3, verdict="accepted").changed == 3
    told = ask(studio, "decide", entries=",".join(map(str, entries)), verdict="accepted")
    assert (told.decision, told.changed, told.same) == (0, 0, 3)
    assert told.said == "Nothing was changed. 3 images were accepted already."
    for fields, words in (
        ({"entries": [1, 999]}, "no image 999"), ({}, "choose some first"),
            ({"filter": "", "entries": [1]}, "not both"),
        ({"filter": "class=owl"}, "choose some first"), ({"filter": "region=0,0 1,0 1,1"}, "used as filters"),
        ({"entries": entries, "reason": "x" * 1001}, "at most 1000"),
        ({"entries": entries, "session": 7}, "no session 7"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=words):
            ask(studio, "decide", verdict="rejected", **fields)
    assert {one.verdict for one in everything(studio.workspace)} == {"accepted"}


def test_what_somebody_else_decided_since_stays(studio: Studio) -> None:
    one, two, three = birds(studio.workspace, 3)
    first = ask(studio, "decide", entries=[one, two, three], verdict="accepted", author="Ada")
    ask(studio, "decide", entries=[two], verdict="rejected", reason="a  hat", author="Bo")
    back = ask(studio, "undo-decision", decision=first.decision, author="Ada")
    assert (back.changed, back.same) == (2, 1)
    assert back.said == (
        "Taken back: the verdict “accepted” on 2 images. 1 image stays as it is: something else was decided since."
    )
    held = verdicts(studio.workspace)
    assert held == {one: ("open", "", ""), two: ("rejected", "a hat", "Bo"), three: ("open", "", "")}
    with pytest.raises(UserError, match="undone already"):
        ask(studio, "undo-decision", decision=first.decision)
    with pytest.raises(UserError, match="no decision to undo"):
        ask(studio, "undo-decision", author="Ada")
    ask(studio, "undo-decision", author="Bo")
    assert verdicts(studio.workspace)[two] == ("open", "", ""), "Ada took her word back as well"


@pytest.mark.parametrize("first", ["Ada", "Bo"])
def test_what_two_took_back_stays_so_until_it_is_done_again(studio: Studio, first: str) -> None:
    (image,) = birds(studio.workspace, 1)
    ask(studio, "decide", entries=[image], verdict="rejected", reason="bad", author="Ada")
    ask(studio, "decide", entries=[image], verdict="accepted", author="Bo")
    undone = {name: ask(studio, "undo-decision", author=name) for name in ("Ada", "Bo")}
    assert (undone["Ada"].changed, undone["Ada"].same) == (0, 1), "what Bo says stays"
    assert verdicts(studio.workspace)[image] == ("open", "", "")
    ask(studio, "undo-decision", decision=undone[first].decision, author=first)
    words = {"Ada": ("rejected", "bad", "Ada"), "Bo": ("accepted", "", "Bo")}
    assert verdicts(studio.workspace)[image] == words[first]
    other = "Bo" if first == "Ada" else "Ada"
    ask(studio, "undo-decision", decision=undone[other].decision, author=other)
    assert verdicts(studio.workspace)[image] == words["Bo"], "the later word of two that count"
    ask(studio, "undo-decision", author="Bo")
    assert verdicts(studio.workspace)[image] == words["Ada"] and faults(studio.workspace) == ()
    assert ask(studio, "undo-decision", author="Ada").said.startswith("Taken back"), "and not done again"
    assert verdicts(studio.workspace)[image] == ("open", "", "") and faults(studio.workspace) == ()


def test_tags_and_labels_that_two_took_back_stay_so(studio: Studio) -> None:
    (image,) = birds(studio.workspace, 1)

    def held() -> tuple[object, ...]:
        one = studio.workspace.catalogue.get(image)
        return one.classes, one.tags

    for author, label, put in (("Ada", "gull", True), ("Bo", "owl", False)):
        ask(studio, "relabel-images", entries=[image], label=label, author=author)
        ask(studio, "tag-images", entries=[image], tag="odd", put=put, author=author)
    assert held() == (("owl",), ())
    for author in ("Ada", "Ada", "Bo", "Bo"):
        ask(studio, "undo-decision", author=author)
    assert held() == (("bird",), ()) and faults(studio.workspace) == ()


def test_what_explore_took_back_is_not_brought_back(studio: Studio) -> None:
    workspace = studio.workspace
    (image,) = birds(workspace, 1)
    run, case = workspace.catalogue.get(image).run, workspace.catalogue.get(image).test_case
    ask(studio, "review", run=run, case=case, verdict="rejected", reason="dark")
    ask(studio, "undo", run=run)
    ask(studio, "decide", entries=[image], verdict="accepted", author="Ada")
    ask(studio, "undo-decision", author="Ada")
    assert verdicts(workspace)[image] == ("open", "", "")


def test_one_after_the_other_is_taken_back_and_done_again(studio: Studio) -> None:
    """Decisions on one image are undone one after another, and an undo is undone in turn."""
    (image,) = birds(studio.workspace, 1)
    were = [verdicts(studio.workspace)[image]]
    for verdict, reason in (("accepted", ""), ("rejected", "blurred"), ("rejected", "dark"), ("open", "")):
        ask(studio, "decide", entries=[image], verdict=verdict, reason=reason, author="Ada")
        were.append(verdicts(studio.workspace)[image])
    backs = []
    for was in were[-2::-1]:
        backs.append(ask(studio, "undo-decision", author="Ada").decision)
        assert verdicts(studio.workspace)[image] == was
    for back, then in zip(backs[::-1], were[1:], strict=True):
        ask(studio, "undo-decision", decision=back, author="Ada")
        assert verdicts(studio.workspace)[image] == then
    listed = ask(studio, "list-decisions", limit=5)
    assert len(listed["decisions"]) == 5 and listed["next"] == listed["decisions"][-1]["decision"]
    rest = ask(studio, "list-decisions", limit=50, after=listed["next"], by="Ada")
    assert len(rest["decisions"]) == 7 and rest["next"] == 0
    assert rest["decisions"][-1]["what"] == "accepted" and rest["decisions"][-1]["undone"]


def test_what_is_sent_again_with_its_key_is_done_once(studio: Studio) -> None:
    """A page that lost the first reply sends the request again."""
    workspace = studio.workspace
    one, other = birds(workspace, 2)
    sent: list[tuple[str, dict[str, Any]]] = [
        ("decide", {"entries": [one], "verdict": "accepted", "key": "a"}),
        ("decide", {"entries": [one, other], "verdict": "rejected", "key": "b"}),
        ("tag-images", {"entries": [one], "tag": "odd", "key": "c"}),
        ("relabel-images", {"entries": [one], "label": "owl", "key": "d"}),
        ("undo-decision", {"key": "e"}),
        ("undo-decision", {"key": "f"}),
        ("undo-decision", {"key": "g"}),
    ]
    for name, fields in sent:
        done = ask(studio, name, **fields)
        were = everything(workspace)
        again = ask(studio, name, **fields)
        assert everything(workspace) == were
        told = [(reply.decision, reply.changed, reply.said, reply.entry) for reply in (done, again)]
        assert told[0] == told[1] and done.decision
    assert [verdicts(workspace)[entry][0] for entry in (one, other)] == ["accepted", "open"], "the first one counts"
    for name, fields in (
        ("decide", {"entries": [one], "verdict": "open", "key": "c"}),
        ("undo-decision", {"key": "a"}),
    ):
        with pytest.raises(UserError, match="Another kind of decision used this key"):
            ask(studio, name, **fields)


def test_explore_takes_back_what_was_decided_of_its_run_in_one_step(studio: Studio) -> None:
    workspace = studio.workspace
    mine, other = birds(workspace, 4), birds(workspace, 2, shade=201)
    run, elsewhere = (workspace.catalogue.get(entry).run for entry in (mine[0], other[0]))
    case = workspace.catalogue.get(mine[0]).test_case
    ask(studio, "review", run=run, case=case, verdict="rejected", reason="dark")
    ask(studio, "decide", entries=[*mine, *other], verdict="accepted", author="Ada")
    assert ask(studio, "undo", run=run).said == "Taken back: the verdicts on 4 images."
    held = verdicts(workspace)
    assert held[mine[0]] == ("rejected", "dark", "") and {held[entry][0] for entry in mine[1:]} == {"open"}
    assert {held[entry][0] for entry in other} == {"accepted"}
    ask(studio, "redo", run=run)
    assert verdicts(workspace)[mine[0]] == ("accepted", "", "Ada")
    assert len(workspace.steps.of(elsewhere).done) == 1
    # Undo and redo in the run do not change that Ada made the decision.
    assert ask(studio, "undo-decision", author="Ada").changed == 6 and faults(workspace) == ()


def test_a_history_tells_who_said_what(studio: Studio) -> None:
    (image,) = birds(studio.workspace, 1)
    entry = studio.workspace.catalogue.get(image)
    ask(studio, "review", run=entry.run, case=entry.test_case, verdict="accepted")
    ask(studio, "tag-images", entries=[image], tag="odd", author="Ada")
    ask(studio, "relabel-images", entries=[image], label="gull", author="Bo")
    ask(studio, "decide", entries=[image], verdict="rejected", reason="blurred", author=" Ada  L. ")
    ask(studio, "undo-decision", author="Bo")
    told = [
        (one["kind"], one["what"], one["reason"], one["author"], one["restored"], bool(one["decision"]))
        for one in ask(studio, "decision-history", entry=image)["history"]
    ]
    assert told == [
        ("label", "bird", "", "Bo", True, True),
        ("review", "rejected", "blurred", "Ada L.", False, True),
        ("label", "gull", "", "Bo", False, True),
        ("tag", "odd", "", "Ada", False, True),
        ("review", "accepted", "", "", False, False),
    ]
    with pytest.raises(UserError, match="no image 99"):
        ask(studio, "decision-history", entry=99)
    facts = ask(studio, "list-test-cases")["test_cases"][0]
    assert (facts["reviewer"], facts["review"], facts["tags"]) == ("Ada L.", "rejected", ["odd"])


def test_tags_in_bulk(studio: Studio) -> None:
    entries = birds(studio.workspace, 5)
    assert ask(studio, "tag-images", entries=entries[:2], tag=" a {b} ").said == "Put the tag “a {b}” on 2 images."
    told = ask(studio, "tag-images", filter="", expected=5, tag="a {b}", author="Ada")
    assert told.said == "Put the tag “a {b}” on 3 images. 2 images were tagged so already."
    tagged = ImageFilter(facets={"tag": ("a {b}",)})
    assert studio.workspace.catalogue.count(tagged).number == 5
    off = ask(studio, "tag-images", entries=entries[:1], tag="a {b}", put=False)
    assert off.said == "Took the tag “a {b}” off 1 image."
    assert ask(studio, "undo-decision", author="Ada").changed == 3
    assert studio.workspace.catalogue.ids(tagged) == (entries[1],)
    ask(studio, "undo-decision", decision=off.decision)
    assert studio.workspace.catalogue.ids(tagged) == tuple(entries[:2]) and faults(studio.workspace) == ()
    for tag in (" ", "x" * 61):
        with pytest.raises(UserError):
            ask(studio, "tag-images", entries=entries, tag=tag)


# Labels


def test_another_label_moves_the_image_and_what_models_get_right_of_it(studio: Studio) -> None:
    workspace = studio.workspace
    one, two = birds(workspace, 2)
    for sha, label in (
        (workspace.catalogue.get(one).image_sha, "gull"),
        (workspace.catalogue.get(one).source_sha, "bird"),
    ):
        workspace.predictions.append(sha, "m", Prediction("classification", "m", (Guess(label, 0.9),)))

    def cells() -> dict[tuple[str, str], int]:
        return {(cell.line, cell.place): cell.entries for cell in workspace.catalogue.coverage()}

    was = (everything(workspace), cells())
    assert workspace.catalogue.get(one).standings == {"m": "newly wrong"}
    done = ask(studio, "relabel-images", entries=[one], label=" sea  gull ", author="Ada")
    assert done.said == "Gave the label “sea gull” to 1 image."
    ask(studio, "relabel-images", entries=[one, two], label="gull", author="Ada")
    ask(studio, "relabel-images", entries=[two], label="bird", author="Ada")
    held = workspace.catalogue.get(one)
    assert (held.classes, held.standings) == (("gull",), {"m": "right"})
    assert workspace.catalogue.ids(ImageFilter(facets={"class": ("gull",)})) == (one,)
    assert cells() == {("bird", kind): 1 for _, kind in was[1]} | {("gull", kind): 1 for _, kind in was[1]}
    assert faults(workspace) == ()
    workspace.predictions.append(held.source_sha, "m", Prediction("classification", "m", (Guess("gull", 0.9),)))
    workspace.predictions.append(held.image_sha, "m", Prediction("classification", "m", (Guess("bird", 0.9),)))
    assert workspace.catalogue.get(one).standings == {"m": "newly wrong"}, "later predictions are judged by it too"
    for _ in range(3):
        ask(studio, "undo-decision", author="Ada")
    assert cells() == was[1] and [one.classes for one in everything(workspace)] == [one.classes for one in was[0]]
    assert workspace.catalogue.get(one).standings == {"m": "right"}, "a bird, as its task and the model say"
    assert faults(workspace) == ()


def test_a_label_is_for_classifications_and_never_empty(studio: Studio) -> None:
    bird, *_ = birds(studio.workspace, 1)
    road, *_ = birds(studio.workspace, 1, ROAD, 201)
    with pytest.raises(UserError, match="belongs to a segmentation"):
        ask(studio, "relabel-images", entries=[bird, road], label="gull")
    with pytest.raises(UserError, match="cannot do without"):
        ask(studio, "relabel-images", entries=[bird], label="  ")
    assert studio.workspace.catalogue.get(bird).classes == ("bird",)


def test_a_test_set_takes_the_label_that_was_decided(studio: Studio) -> None:
    one, two = birds(studio.workspace, 2)
    ask(studio, "relabel-images", entries=[one], label="gull")
    set_id = ask(studio, "create-test-set", title="Birds")["test_set"]
    cases = [studio.workspace.catalogue.get(entry).test_case for entry in (one, two)]
    ask(studio, "add-to-test-set", test_set=set_id, cases=cases, sources=True)
    images = ask(studio, "show-test-set", version=f"{set_id}@draft")["images"]
    assert [(image["role"], image["label"]) for image in images] == [
        ("generated", "gull"), ("generated", "bird"), ("source", "bird")
    ]  # fmt: skip


# Random actions


class Deciding(Busy):
    """Also decides in bulk and singly, and undoes decisions."""

    def step(self) -> None:
        fate, decisions, catalogue = self.fate, self.workspace.decisions, self.workspace.catalogue
        entries = [] if fate.random() < 0.5 else list(catalogue.ids())
        if not entries:
            super().step()
            return
        some = Target(fate.sample(entries, fate.randrange(1, min(len(entries), 8) + 1)))
        author, what = fate.choice(("", "Ada", "Bo")), fate.randrange(5)
        if what == 0:
            verdicts: tuple[Verdict, ...] = ("accepted", "rejected", "open")
            decisions.review(some, fate.choice(verdicts), fate.choice(("", "why")), author)
        elif what == 1:
            decisions.tag(some, fate.choice(("good", "odd")), fate.random() < 0.6, author)
        elif what == 2:
            labelled = [one for one in some.entries if catalogue.get(one).kind == "classification"]
            if labelled:
                decisions.relabel(Target(labelled), fate.choice(("bird", "Möwe", "owl")), author)
        else:
            known = decisions.all(200)
            open_ones = [0, *(one.id for one in known if not one.undone)]
            try:
                decisions.take_back(fate.choice(open_ones), author)
            except UserError as error:
                assert "no decision to undo" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_the_catalogue_follows_whatever_is_decided(workspace: Workspace, seed: int) -> None:
    busy = Deciding(workspace, seed)
    for number in range(300):
        busy.step()
        if number % 50 == 49:
            assert faults(workspace) == ()
    known = workspace.decisions.all(1000)
    assert len({one.kind for one in known}) == 3 and any(one.undoes for one in known)
    for one in everything(workspace):
        said = [held for held in workspace.decisions.of_entry(one.id) if held.kind == "review"]
        assert one.verdict == (said[0].what if said else "open")


# Orders


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with workspace_in(tmp_path_factory.mktemp("decided")) as workspace:
        busy = Deciding(workspace, 12)
        for _ in range(400):
            busy.step()
        yield workspace


def reasons(one: CatalogueEntry, all_of_them: list[CatalogueEntry]) -> int:
    """Return the number of reasons to review an open image, by which an order sorts."""

    def cells(held: CatalogueEntry) -> set[tuple[str, str]]:
        kinds: set[str] = {*(edit.edit_type for edit in held.edits)} or {""}
        return {(name, kind) for name in held.classes or ("",) for kind in kinds}

    decided = {cell for held in all_of_them if held.verdict != "open" for cell in cells(held)}
    return sum((
        any(check.passed is None for check in one.checks),
        any(check.passed is False for check in one.checks),
        "no consensus" in one.study_outcomes,
        "newly wrong" in one.standings.values(),
        bool(cells(one) - decided),
    ))  # fmt: skip


def in_order(workspace: Workspace, wanted: ImageFilter, order: Order) -> list[int]:
    everyone = everything(workspace)
    some = [one for one in everyone if one.id in set(workspace.catalogue.ids(wanted))]
    if order == INFORMATION:
        by = {
            one.id: (one.verdict != "open", -reasons(one, everyone) * (one.verdict == "open"), -one.id) for one in some
        }
        assert len({held[:2] for held in by.values()}) > 2
        return sorted(by, key=lambda entry: by[entry])
    first: dict[str, int] = {}
    for one in sorted(workspace.catalogue._database.read(_sources), key=lambda held: held[0]):
        first.setdefault(one[1], one[0])
    return sorted(
        (one.id for one in some), key=lambda entry: (-first[workspace.catalogue.get(entry).source_sha], entry)
    )


def _sources(db: Any) -> list[tuple[int, str]]:
    """Return the source of each entry, also of images of deleted runs."""
    return [(row["id"], row["source"]) for row in db.query("SELECT id, source FROM catalogue")]


@pytest.mark.slow
@pytest.mark.parametrize("order", [INFORMATION, SOURCE], ids=lambda order: order.sort)
@pytest.mark.parametrize(
    "wanted", [ImageFilter(), ImageFilter(facets={"method": ("a",)}), ImageFilter(text="bird")], ids=str
)
def test_pages_meet_every_image_once_by_source_and_by_information(
    filled: Workspace, order: Order, wanted: ImageFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue, expected = filled.catalogue, in_order(filled, wanted, order)
    assert len(expected) > 15
    for few in (1000, 0):
        monkeypatch.setattr("storage.curation.selection._FEW", few)
        for held in (None, catalogue.hold(wanted, order)):
            forwards: list[CatalogueEntry] = []
            while (page := catalogue.page(wanted, order, 7, forwards[-1].key if forwards else None, held=held)).entries:
                forwards += page.entries
                assert page.more == (len(forwards) < len(expected))
            assert [one.id for one in forwards] == expected
            half = len(expected) // 2
            page = catalogue.page(wanted, order, 7, PageKey.read(forwards[half - 1].key.text), held=held)
            assert [one.id for one in page.entries] == expected[half : half + 7]
            for at in (0, 1, len(expected) // 2, len(expected) - 1):
                found = catalogue.page(wanted, order, 5, at=at, held=held).entries
                assert [one.id for one in found] == expected[at : at + 5]
            assert catalogue.page(wanted, order, at=len(expected), held=held).entries == ()


ORDERS = [INFORMATION, SOURCE, Order(), Order("oldest")] + [
    Order(*held, falling) for falling in (False, True) for held in (("check", "label seen"), ("reviewed", ""))
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order.sort} {order.falling}")
def test_an_image_is_found_at_its_place(filled: Workspace, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = filled.catalogue
    for wanted in (ImageFilter(), ImageFilter(facets={"method": ("a",)}), ImageFilter(text="bird")):
        entries = [one.id for one in catalogue.page(wanted, order, 10_000).entries]
        assert len(entries) > 15
        for few in (1000, 0):
            monkeypatch.setattr("storage.curation.selection._FEW", few)
            assert [catalogue.place(wanted, order, entry) for entry in entries] == list(range(len(entries)))
            held = catalogue.hold(wanted, order)
            assert [catalogue.place(wanted, order, entry, held) for entry in entries] == list(range(len(entries)))
        other = next(one.id for one in everything(filled) if wanted == ImageFilter() or one.id not in entries)
        assert wanted == ImageFilter() or catalogue.place(wanted, order, other) is None
        assert catalogue.place(wanted, order, 1 << 40) is None


def test_what_is_held_stays_while_it_is_decided(workspace: Workspace) -> None:
    entries = birds(workspace, 9)
    wanted = ImageFilter(facets={"review": ("open",)})
    held = workspace.catalogue.hold(wanted, INFORMATION)
    seen: list[int] = []
    key: PageKey | None = None
    while (page := workspace.catalogue.page(wanted, INFORMATION, 2, key, held=held)).entries:
        assert [one.verdict for one in page.entries] == ["open"] * len(page.entries)
        for one in page.entries:
            workspace.decisions.review(Target([one.id]), "accepted")
        seen += [one.id for one in page.entries]
        key = PageKey.read(page.entries[-1].key.text)
    assert seen == entries[::-1]
    again = workspace.catalogue.page(wanted, INFORMATION, 100, held=held).entries
    assert [one.id for one in again] == seen and {one.verdict for one in again} == {"accepted"}
    assert workspace.catalogue.page(wanted, INFORMATION).entries == ()
    birds(workspace, 1, shade=201)
    assert len(workspace.catalogue.page(wanted, INFORMATION, held=held).entries) == 9
    assert len(workspace.catalogue.page(wanted, INFORMATION).entries) == 1


def test_a_page_goes_on_where_it_was_after_its_image_was_decided(workspace: Workspace) -> None:
    entries = birds(workspace, 6)
    first = workspace.catalogue.page(order=INFORMATION, limit=2)
    key = PageKey.read(first.entries[-1].key.text)
    workspace.decisions.review(Target([one.id for one in first.entries]), "rejected")
    # Their cell now has a decision, so the other images have one reason less. They still come next.
    rest = workspace.catalogue.page(order=INFORMATION, after=key).entries
    assert [one.id for one in rest] == [*entries[-3::-1], *entries[:-3:-1]]
    for text in ("nan:1", "inf:3", "x", "", "1:9" * 40):
        with pytest.raises(ValueError):
            PageKey.read(text)


# Repeats


def judge(commands: Commands, session: int, entries: list[int]) -> list[int]:
    """Decide the entries one by one, and answer the repeats. Return the repeated entries."""
    drawn = []
    for entry in entries:
        verdict = "accepted" if entry % 3 else "rejected"
        done = commands.send("decide", {"entries": [entry], "verdict": verdict, "session": session})
        if done.repeat:
            drawn.append(done.repeat)
            said = {"session": session, "entry": done.repeat, "verdict": "accepted"}
            assert commands.send("answer-repeat", said) == {"agrees": bool(done.repeat % 3)}
    return drawn


@pytest.mark.slow
def test_repeats_are_the_same_for_the_same_decisions_and_none_is_lost(studio: Studio, tmp_path: Path) -> None:
    entries = birds(studio.workspace, 120)
    session = ask(studio, "begin-review", author="Ada", repeats=0.2)["session"]
    drawn = judge(studio.commands, session, entries)
    assert len(set(drawn)) == len(drawn) > 10 and not {*drawn} & {*entries[-10:]}
    given = [studio.workspace.catalogue.get(entry).verdict for entry in drawn]
    assert given == ["accepted" if entry % 3 else "rejected" for entry in drawn], "their verdicts stay"
    assert {one.reviewer for one in everything(studio.workspace)} == {"Ada"}
    figures = ask(studio, "review-figures", session=session)
    assert (figures["decisions"], figures["repeats"], figures["same"]) == (120, len(drawn), given.count("accepted"))
    assert figures["low"] < figures["share"] == given.count("accepted") / len(drawn) < figures["high"]
    assert figures["an_hour"] > 0 and "Wilson" in figures["words"]

    again: list[int] = []
    for half in (entries[:60], entries[60:]):  # the workspace is closed and opened between the halves
        with workspace_in(tmp_path / "other") as other:
            commands = Commands()
            commands.take_on(CurationDecisions(other))
            if not again:
                assert birds(other, 120) == entries
                assert commands.send("begin-review", {"repeats": 0.2}) == {"session": session}
            again += judge(commands, session, half)
            told = commands.send("review-figures", {"session": session})
            assert (told["decisions"], told["repeats"]) == (half[-1] - entries[0] + 1, len(again))
    assert again == drawn


def test_a_session_refuses_what_it_does_not_repeat(studio: Studio) -> None:
    entries = birds(studio.workspace, 14)
    session = ask(studio, "begin-review")["session"]
    nothing = ask(studio, "review-figures", session=session)
    assert (nothing["decisions"], nothing["an_hour"], nothing["share"]) == (0, None, None)
    assert nothing["words"] == "undefined: no image was shown once more yet"
    for entry in entries[:12]:
        assert ask(studio, "decide", entries=[entry], verdict="rejected", session=session).repeat == 0
    ask(studio, "undo-decision")
    ask(studio, "decide", entries=entries[12:], verdict="accepted", session=session)
    for entry, words in ((entries[11], "taken back"), (entries[12], "in bulk"), (999, "unknown")):
        with pytest.raises(UserError, match="not due to be judged again"):
            assert ask(studio, "answer-repeat", session=session, entry=entry, verdict="accepted"), words
    assert ask(studio, "answer-repeat", session=session, entry=entries[0], verdict="rejected") == {"agrees": True}
    with pytest.raises(UserError, match="not due to be judged again"):
        ask(studio, "answer-repeat", session=session, entry=entries[0], verdict="rejected")
    with pytest.raises(UserError, match="no session 99"):
        ask(studio, "review-figures", session=99)
    with pytest.raises(UserError):
        ask(studio, "begin-review", repeats=0.5)


# Source images


def test_an_image_without_a_test_case_is_decided_as_the_others(workspace: Workspace) -> None:
    (one,) = birds(workspace, 1)
    later = picture(77)
    sha = hashlib.sha256(png_of(later)).hexdigest()
    held_by = workspace.imports.begin("Owls", "owls.zip", "c" * 64, {})
    owl = workspace.images.save(Image.new("RGB", (8, 8), (1, 2, 3)))
    workspace.imports.add(held_by, [NewImage("owl", owl, label="owl", source=sha)])
    two = max(workspace.catalogue.ids())
    workspace.decisions.review(Target([one, two]), "rejected", "dark", "Ada")
    workspace.decisions.relabel(Target([one, two]), "gull", "Ada")
    workspace.decisions.tag(Target([two]), "odd", author="Ada")
    held = workspace.catalogue.get(two)
    assert (held.verdict, held.reason, held.reviewer, held.classes) == ("rejected", "dark", "Ada", ("gull",))
    assert [said.what for said in workspace.decisions.of_entry(two)] == ["odd", "gull", "rejected"]
    assert workspace.catalogue.page(order=SOURCE).entries[0].id == two, "it is its own source"
    assert faults(workspace) == ()
    for _ in range(3):
        workspace.decisions.take_back(author="Ada")
    held = workspace.catalogue.get(two)
    assert (held.verdict, held.reviewer, held.classes, held.tags) == ("open", "", ("owl",), ())
    assert workspace.images.add(later) == sha
    assert workspace.catalogue.get(two).source_sha == sha and faults(workspace) == ()
    order = [entry.id for entry in workspace.catalogue.page(order=SOURCE).entries]
    assert order == [two, one], "each is of a source of its own"
    source = workspace.catalogue.get(one).source_sha
    dove = workspace.images.save(Image.new("RGB", (8, 8), (4, 5, 6)))
    workspace.imports.add(held_by, [NewImage("dove", dove, label="dove", source=source)])
    order = [entry.id for entry in workspace.catalogue.page(order=SOURCE).entries]
    assert order == [two, one, two + 1] and faults(workspace) == ()
