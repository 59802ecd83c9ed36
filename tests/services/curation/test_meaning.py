"""Images are embedded in the background, and found by their content.

The embedder is a stand-in that places images by their mean colour. `test_meaning_demo.py` tests the embedded one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageStat

from core.errors import UserError
from core.image_filter import ImageFilter
from core.types import Task
from services.curation.meaning import Meaning, Picture
from services.studio import Studio
from storage.curation import entry_sets
from tests.support.cases import made_case
from tests.support.serving import until

pytestmark = pytest.mark.slow  # torch is loaded
RED, GREEN, BLUE = (220, 20, 20), (20, 220, 20), (20, 20, 220)
COLOURS = {"red": RED, "green": GREEN, "blue": BLUE}


class ColourEmbedder:
    """Embedder that places images at their mean colour, and texts at the colour that they name."""

    name = "colours"

    def __init__(self) -> None:
        self.seen: list[tuple[float, ...]] = []
        self.texts: list[str] = []
        self.held = threading.Event()
        self.held.set()

    def image(self, image: Image.Image) -> Sequence[float]:
        assert self.held.wait(60)
        mean = tuple(ImageStat.Stat(image).mean)
        self.seen.append(mean)
        return mean

    def text(self, text: str) -> Sequence[float]:
        self.texts.append(text)
        return next(colour for word, colour in COLOURS.items() if word in text)


@pytest.fixture
def embedder(studio: Studio) -> ColourEmbedder:
    made = ColourEmbedder()
    studio.driver.models.embedder = made  # type: ignore[misc]
    return made


def add(studio: Studio, *colours: tuple[int, int, int], label: str = "bird") -> list[int]:
    """Add a run with images of these colours. Return their entries."""
    source = Image.new("RGB", (8, 8), (128, 128, 128))
    run = studio.workspace.runs.create(source, Task("classification", label), "demo", "A run", {})
    cases = [
        studio.workspace.test_cases.append(run, None, made_case(Image.new("RGB", (8, 8), colour), source))
        for colour in colours
    ]
    by_case = {entry.test_case: entry.id for entry in studio.workspace.catalogue.page(limit=200).entries}
    return [by_case[case] for case in cases]


def filled(studio: Studio) -> Meaning:
    studio.meaning.begin()
    until(lambda: not studio.meaning.filling().working)
    return studio.meaning


def everything(studio: Studio, **wanted: Any) -> entry_sets.Bits:
    return studio.workspace.catalogue.bits(ImageFilter(**wanted))


def test_images_are_embedded_the_newest_first_and_once(studio: Studio, embedder: ColourEmbedder) -> None:
    entries = add(studio, *((shade, 40, 40) for shade in range(100, 140)))
    assert studio.meaning.filling().words == "0 of 40"
    meaning = filled(studio)
    assert meaning.filling().words == "40 of 40"
    assert [round(red) for red, _, _ in embedder.seen] == list(range(139, 99, -1))
    (newer,) = add(studio, RED)
    filled(studio)
    assert len(embedder.seen) == 41, "none is looked at twice"
    assert set(meaning.table().entries.tolist()) == {*entries, newer}


def test_equal_images_are_looked_at_once_and_both_are_found(studio: Studio, embedder: ColourEmbedder) -> None:
    entries = add(studio, RED, RED, BLUE)
    found = filled(studio).ranked("red", everything(studio))
    assert found.entries[:2] == (entries[1], entries[0]) and len(embedder.seen) == 2


def test_a_person_s_job_goes_before_the_next_batch(studio: Studio, embedder: ColourEmbedder) -> None:
    add(studio, *((shade, 40, 40) for shade in range(100, 140)))
    embedder.held.clear()
    studio.meaning.begin()
    seen_by_job: list[int] = []
    until(lambda: studio.jobs.waiting_for() == "looking at images")
    studio.jobs.submit("a run", (), lambda handle: seen_by_job.append(len(embedder.seen)))
    embedder.held.set()
    until(lambda: not studio.meaning.filling().working)
    assert seen_by_job and 0 < seen_by_job[0] < 40
    assert len(embedder.seen) == 40


def test_closing_stops_it(studio: Studio, embedder: ColourEmbedder) -> None:
    add(studio, *((shade, 40, 40) for shade in range(100, 140)))
    embedder.held.clear()
    studio.meaning.begin()
    until(lambda: studio.jobs.waiting_for() == "looking at images")
    closing = threading.Thread(target=studio.jobs.close, kwargs={"seconds": 60})
    closing.start()
    until(lambda: studio.jobs.closing)
    embedder.held.set()
    closing.join()
    assert len(embedder.seen) < 40 and not studio.meaning.filling().working
    studio.meaning.begin()
    assert not studio.meaning.filling().working


def test_nothing_is_loaded_before_there_is_an_image(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: object) -> None:
        raise AssertionError("the embedder was asked for")

    monkeypatch.delattr(studio.driver.models, "embedder")
    monkeypatch.setattr(type(studio.driver.models), "embedder", property(refuse), raising=False)
    filling = filled(studio).filling()
    assert (filling.words, filling.problem) == ("0 of 0", "")


def test_an_embedder_that_cannot_be_loaded_is_told_and_tried_again(
    studio: Studio, embedder: ColourEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(studio, RED)

    def fail(_image: Image.Image) -> None:
        raise UserError("The embedder is missing: fetch it.")

    with monkeypatch.context() as patched:
        patched.setattr(embedder, "image", fail)
        assert filled(studio).filling().problem == "The embedder is missing: fetch it."
    assert filled(studio).filling().problem == "" and studio.meaning.filling().words == "1 of 1"


def test_a_damaged_image_is_left_out(studio: Studio, embedder: ColourEmbedder) -> None:
    entries = add(studio, RED, GREEN, BLUE)
    studio.workspace.catalogue.get(entries[1]).image_path.write_bytes(b"no image")
    filling = filled(studio).filling()
    assert (filling.words, filling.unreadable, filling.problem) == ("2 of 3", 1, "")
    assert set(studio.meaning.ranked("red", everything(studio)).entries) == {entries[0], entries[2]}


def test_images_get_their_hashes_while_they_are_embedded(studio: Studio, embedder: ColourEmbedder) -> None:
    add(studio, RED, GREEN)
    filled(studio)
    shas = [entry.image_sha for entry in studio.workspace.catalogue.page().entries]
    assert set(studio.workspace.test_sets.hashes(shas)) == set(shas)


def test_groups_open_no_file_and_leave_out_what_cannot_be_read(studio: Studio, embedder: ColourEmbedder) -> None:
    entries = add(studio, RED, (201, 0, 0), (202, 0, 0), BLUE)
    vectors = np.array([RED, (201, 0, 0), (202, 0, 0), BLUE], np.float32)
    studio.workspace.vectors.add(studio.meaning.embedder, entries, vectors)  # earlier versions saved no hashes
    studio.workspace.catalogue.get(entries[2]).image_path.write_bytes(b"no image")
    found = studio.near_duplicates.groups(everything(studio))
    assert (found.groups, found.waiting, found.unreadable) == ((), 3, 0), "one of the pairs they may be"
    until(lambda: not studio.meaning.filling().working)
    found = studio.near_duplicates.groups(everything(studio))
    assert (found.groups, found.waiting, found.unreadable) == ((tuple(entries[:2]),), 0, 1)
    listed = studio.near_duplicates.of(entries[0])
    assert [alike.entry for alike in listed] == [entries[1]]


def test_before_any_image_is_embedded_nothing_looks_like_another(studio: Studio, embedder: ColourEmbedder) -> None:
    (entry, _) = add(studio, RED, (201, 0, 0))
    assert studio.near_duplicates.of(entry) == ()


def test_a_filter_is_heeded_and_a_deleted_run_is_not_found(studio: Studio, embedder: ColourEmbedder) -> None:
    birds, boats = add(studio, RED, GREEN), add(studio, (200, 10, 0), BLUE, label="boat")
    meaning = filled(studio)
    assert meaning.ranked("red", everything(studio)).entries[:2] == (birds[0], boats[0])
    only = everything(studio, facets={"class": ("boat",)})
    assert meaning.ranked("red", only).entries == (boats[0], boats[1])
    assert meaning.ranked("red", everything(studio), most=1).entries == (birds[0],)
    studio.workspace.runs.remove(studio.workspace.catalogue.get(birds[0]).run)
    assert meaning.ranked("red", everything(studio)).entries == tuple(boats)


def test_few_of_many_are_ranked_as_all_are(studio: Studio, embedder: ColourEmbedder) -> None:
    fate = np.random.default_rng(5)
    entries = add(studio, *((int(red), int(green), int(blue)) for red, green, blue in fate.integers(10, 250, (60, 3))))
    meaning = filled(studio)
    ranks = {entry: place for place, entry in enumerate(meaning.ranked("green", everything(studio)).entries)}
    chosen = [entries[place] for place in (3, 17, 18, 40, 59)]
    few = entry_sets.of_entries(chosen, len(everything(studio)) // entry_sets.BYTES)
    assert meaning.ranked("green", few).entries == tuple(sorted(chosen, key=lambda entry: ranks[entry]))


def test_what_looks_like_an_entry_or_a_picture(studio: Studio, embedder: ColourEmbedder) -> None:
    entries = add(studio, RED, (200, 30, 30), BLUE, (20, 20, 180))
    meaning = filled(studio)
    assert meaning.ranked(entries[2], everything(studio)).entries[0] == entries[3]
    assert entries[2] not in meaning.ranked(entries[2], everything(studio)).entries
    own = Picture(studio.workspace.images.add(Image.new("RGBA", (3, 3), (*RED, 255))))
    assert meaning.ranked(own, everything(studio)).entries[0] == entries[0]
    with pytest.raises(UserError, match="no image 999"):
        meaning.ranked(999, everything(studio))


def test_a_search_before_all_is_embedded_says_what_is_missing(studio: Studio, embedder: ColourEmbedder) -> None:
    entries = add(studio, RED, BLUE)
    found = studio.meaning.ranked("red", everything(studio))
    assert (found.entries, found.searched, found.waiting) == ((), 0, 2)
    until(lambda: not studio.meaning.filling().working)
    found = studio.meaning.ranked("red", everything(studio))
    assert (found.entries, found.searched, found.waiting) == (tuple(entries), 2, 0)
    assert embedder.texts == ["red"], "a text is encoded once"


def test_the_command_lists_test_cases_with_their_similarity(studio: Studio, embedder: ColourEmbedder) -> None:
    add(studio, RED, BLUE, (180, 60, 60))
    filled(studio)
    found = studio.commands.send("search-images", {"meaning": "something red", "limit": 2, "filter": "class=bird"})
    assert [row["similarity"] for row in found["test_cases"]] == sorted(
        (row["similarity"] for row in found["test_cases"]), reverse=True
    )
    assert len(found["test_cases"]) == 2 and found["searched"] == 3 and found["waiting"] == 0
    nearest = found["test_cases"][0]
    like = studio.commands.send("search-images", {"like": nearest["entry"]})
    assert like["test_cases"][0]["entry"] == found["test_cases"][1]["entry"]
    listed = studio.commands.send("list-test-cases", {})["test_cases"]
    assert {key: value for key, value in nearest.items() if key != "similarity"} in listed


@pytest.mark.parametrize("sent", [{}, {"meaning": " "}, {"meaning": "red", "like": 1}, {"meaning": "“”!"}])
def test_half_a_search_is_refused_in_words(studio: Studio, embedder: ColourEmbedder, sent: dict[str, Any]) -> None:
    with pytest.raises(UserError) as refused:
        studio.commands.send("search-images", sent)
    assert refused.value.field == "meaning"


def test_vectors_stay_for_the_next_start(studio: Studio, embedder: ColourEmbedder, tmp_path: Path) -> None:
    entries = add(studio, RED, BLUE)
    filled(studio)
    again = Meaning(studio.profile, studio.driver.models, studio.workspace, studio.jobs)
    assert again.ranked("blue", everything(studio)).entries == (entries[1], entries[0])
    assert len(embedder.seen) == 2
