"""Splits without leaks: no source, and no pair of sources that look alike, is in two splits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from core.errors import UserError
from core.perceptual_hashes import DISTANCE, perceptual_hash
from core.test_sets import SetEntry, Split
from services.test_sets.drafts import ReleaseTestSet, SplitTestSet, TestSetDrafts
from services.test_sets.splits import leaks_in, proposed, splits_of, units_of
from storage.workspace import Workspace
from tests.support.set_cases import as_jpeg, picture, run_of
from tests.support.workspaces import workspace_in


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def chance_set(seed: int) -> tuple[list[SetEntry], dict[str, int]]:
    """Return images of random sources and the sources' hashes. Some sources look alike, and some are made from
    others.
    """
    fate = random.Random(seed)

    def sha() -> str:
        return f"{fate.getrandbits(256):064x}"

    hashes: dict[str, int] = {}
    entries: list[SetEntry] = []
    for _ in range(fate.randrange(1, 60)):
        source = sha()
        if entries and fate.random() < 0.15:
            source = fate.choice(entries).image
        if source in hashes or source in {entry.image for entry in entries}:
            continue
        value = fate.getrandbits(64)
        if hashes and fate.random() < 0.3:
            value = fate.choice(list(hashes.values()))
            for bit in fate.sample(range(64), fate.randrange(6)):
                value ^= 1 << bit
        hashes[source] = value
        for _ in range(fate.randrange(1, 8)):
            entries.append(SetEntry(sha(), source, fate.choice(("bird", "boat", "car"))))
    return entries, hashes


def assert_nothing_leaks(entries: list[SetEntry], hashes: dict[str, int], splits: dict[str, Split]) -> None:
    """Check every pair of images."""
    for one, other in combinations(entries, 2):
        sources = {one.source, other.source}
        near = sources <= hashes.keys() and (hashes[one.source] ^ hashes[other.source]).bit_count() <= DISTANCE
        if near or one.source == other.source or one.image == other.source or one.source == other.image:
            assert splits[one.image] == splits[other.image]


@pytest.mark.parametrize("seed", range(60))
def test_no_source_and_none_that_looks_like_it_is_in_two_splits(seed: int) -> None:
    entries, hashes = chance_set(seed)
    units = units_of(entries, hashes)
    assert sorted(entry.image for unit in units for entry in unit) == sorted(entry.image for entry in entries)
    shares: dict[Split, float] = {"train": 0.6, "validation": 0.2, "test": 0.2}
    found = proposed(units, shares, seed, keep=True)
    assert found.keys() == {entry.image for entry in entries}
    assert_nothing_leaks(entries, hashes, found)
    assert found == proposed(units_of(entries[::-1], hashes), shares, seed, keep=True), "the order does not matter"
    largest = max(len(unit) for unit in units)
    counts = Counter(found.values())
    for split, share in shares.items():
        # Labels are balanced too, so a split may be off by a few groups.
        assert abs(counts[split] - share * len(entries)) <= 3 * largest


def test_many_images_are_parted_as_the_shares_say_and_each_label_alike() -> None:
    fate = random.Random(1)
    entries = []
    for number in range(1000):
        label = "rare" if number % 20 == 0 else "common"
        source = f"{number:064x}"
        entries += [SetEntry(f"{fate.getrandbits(256):064x}", source, label) for _ in range(fate.randrange(1, 6))]
    units = units_of(entries, {})
    one = proposed(units, {"train": 0.7, "validation": 0.0, "test": 0.3}, 1, keep=True)
    other = proposed(units, {"train": 0.7, "validation": 0.0, "test": 0.3}, 2, keep=True)
    assert one != other and set(one.values()) == {"train", "test"}
    labels = Counter(entry.label for entry in entries)
    for found in (one, other):
        counts = Counter((found[entry.image], entry.label) for entry in entries)
        for label, number in labels.items():
            assert counts["test", label] == pytest.approx(0.3 * number, abs=5)


@pytest.mark.parametrize(("of_a_source", "labels"), [(1, 35), (2, 35), (3, 20), (6, 8), (6, 20), (10, 20)])
def test_few_images_are_parted_as_the_shares_say_also_with_many_labels(of_a_source: int, labels: int) -> None:
    """A fifth of a label's few images is less than one source has. Still, a fifth of all images is in the test
    split.
    """
    fate = random.Random(of_a_source * labels)
    entries = []
    for number in range(70 // of_a_source):
        label, source = f"label {fate.randrange(labels)}", f"{number:064x}"
        entries += [SetEntry(f"{fate.getrandbits(256):064x}", source, label) for _ in range(of_a_source)]
    found = proposed(units_of(entries, {}), {"train": 0.8, "test": 0.2}, 1, keep=True)
    assert abs(Counter(found.values())["test"] - 0.2 * len(entries)) <= of_a_source / 2


def test_no_split_stays_empty_while_there_is_a_source_for_it() -> None:
    entries = [
        SetEntry(f"{10 * source + one:064x}", f"{source:064x}", "bird") for source in range(1, 4) for one in range(9)
    ]
    shares: dict[Split, float] = {"train": 0.9, "validation": 0.05, "test": 0.05}
    found = proposed(units_of(entries, {}), shares, 0, keep=True)
    assert Counter(found.values()) == {"train": 9, "validation": 9, "test": 9}


def test_what_has_a_split_keeps_it_and_what_comes_later_follows_its_source() -> None:
    old = [SetEntry(f"{number:064x}", f"{1000 + number:064x}", "bird", "test") for number in range(10)]
    of_old = [SetEntry(f"{100 + number:064x}", f"{1000 + number:064x}", "bird") for number in range(10)]
    new = [SetEntry(f"{200 + number:064x}", f"{2000 + number:064x}", "bird") for number in range(80)]
    found = proposed(units_of([*old, *of_old, *new], {}), {"train": 0.5, "test": 0.5}, 0, keep=True)
    assert {found[entry.image] for entry in [*old, *of_old]} == {"test"}
    assert Counter(found.values()) == {"train": 50, "test": 50}
    anew = proposed(units_of([*old, *new], {}), {"train": 1.0}, 0, keep=False)
    assert set(anew.values()) == {"train"}


def test_an_original_is_in_the_split_of_what_was_made_from_it(workspace: Workspace) -> None:
    """From pictures to a release, with sources that are JPEG copies of others."""
    cases: list[int] = []
    sources = [picture(number, (64, 64)) for number in range(8)]
    for number, source in enumerate(sources):
        cases += run_of(workspace, source, [100 + number, 200 + number])
        cases += run_of(workspace, as_jpeg(source), [300 + number])
    set_id = workspace.test_sets.create("Birds")
    drafts = TestSetDrafts(workspace)
    drafts.add(set_id, cases, sources=True)
    done = drafts.split(SplitTestSet(test_set=set_id, train=0.5, test=0.5, seed=3))
    assert (done.groups, dict(done.splits)) == (8, {"train": 20, "test": 20})
    assert done.labels == {"train": {"bird": 20}, "test": {"bird": 20}}
    version = drafts.release(ReleaseTestSet(test_set=set_id))
    entries = workspace.test_sets.entries(version.number)
    looks = {sha: perceptual_hash(workspace.images.load(sha)) for sha in {entry.source for entry in entries}}
    assert len(looks) == 16
    assert_nothing_leaks(list(entries), looks, {entry.image: entry.split for entry in entries})
    assert not leaks_in(units_of(entries, looks))


def test_splits_that_leak_are_not_kept(workspace: Workspace) -> None:
    cases = run_of(workspace, 1, [10, 11])
    set_id = workspace.test_sets.create("Birds")
    drafts = TestSetDrafts(workspace)
    drafts.add(set_id, cases)
    draft = workspace.test_sets.get(set_id).draft
    assert draft is not None
    one, other = (entry.image for entry in workspace.test_sets.entries(draft.number))
    workspace.test_sets.set_splits(draft.number, {one: "train", other: "test"})
    with pytest.raises(UserError, match=r"would be in two splits.*split all again"):
        drafts.split(SplitTestSet(test_set=set_id, test=1))
    drafts.split(SplitTestSet(test_set=set_id, test=1, keep=False))
    (unit,) = units_of(workspace.test_sets.entries(draft.number), {})
    assert splits_of(unit) == ("test",)
