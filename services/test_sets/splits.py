"""Groups images of a test set that must stay together, and assigns the groups to splits. Reads no files and no
database.

A model that was trained on one image has an advantage on other images of the same source or a similar source. So all
images of a source, and of similar sources, go into one split.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from core.perceptual_hashes import join_alike
from core.test_sets import SetEntry, Split

Unit = tuple[SetEntry, ...]
"""A group of images that must be in the same split."""


def units_of(
    entries: Sequence[SetEntry], hashes: Mapping[str, int], twins: Iterable[tuple[str, str]] = ()
) -> tuple[Unit, ...]:
    """Return the groups of images that must be in the same split. Two images are in one group if they have the same
    source, if their sources look alike or are `twins`, or if one is the source of the other. `hashes` holds the
    perceptual hash of each source by SHA-256, or of all images of a source if the workspace lacks the source.
    """
    from scipy.cluster.hierarchy import DisjointSet

    groups = DisjointSet(sha for entry in entries for sha in (entry.image, entry.source))
    for entry in entries:
        groups.merge(entry.image, entry.source)
    join_alike(groups, hashes)
    for one, other in twins:
        groups.merge(one, other)
    units: dict[str, list[SetEntry]] = {}
    for entry in entries:
        units.setdefault(groups[entry.image], []).append(entry)
    return tuple(tuple(unit) for unit in units.values())


def splits_of(unit: Unit) -> tuple[Split, ...]:
    """Return the splits of a group's images, sorted, without "". More than one split is a leak."""
    return tuple(sorted({entry.split for entry in unit if entry.split}))


def leaks_in(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the groups whose images are in more than one split."""
    return tuple(unit for unit in units if len(splits_of(unit)) > 1)


def proposed(units: Sequence[Unit], shares: Mapping[Split, float], seed: int, keep: bool) -> dict[str, Split]:
    """Return a split for every image, by SHA-256. The numbers of images come as close to the `shares` as whole groups
    allow, in total and for each label.

    The groups are assigned one by one, the largest first. Groups of equal size come in an order drawn with `seed`. A
    group goes to the split that lacks most images with the group's labels. This is iterative stratification (Sechidis,
    Tsoumakas and Vlahavas, "On the Stratification of Multi-Label Data", 2011) for groups with several labels. If a
    label has few images, this rule would give all of these images to the largest split. So a nearly full split gets no
    group: the split must lack at least half as many images as the group has. The last groups go to empty splits.

    With `keep`, groups keep the splits that they have. No group may have two splits. At least one share must exceed 0.
    """
    total = sum(shares.values())
    share_of = {split: share / total for split, share in shares.items() if share > 0}
    labels = Counter(entry.label for unit in units for entry in unit)
    lacking = {split: {label: share * number for label, number in labels.items()} for split, share in share_of.items()}
    room = {split: share * labels.total() for split, share in share_of.items()}
    empty = set(share_of)
    split_of: dict[str, Split] = {}

    def put(unit: Unit, split: Split) -> None:
        empty.discard(split)
        for entry in unit:
            split_of[entry.image] = split
            if split in lacking:
                lacking[split][entry.label] -= 1
                room[split] -= 1

    settled = [unit for unit in units if keep and splits_of(unit)]
    for unit in settled:
        put(unit, splits_of(unit)[0])
    free = [unit for unit in units if not keep or not splits_of(unit)]
    free.sort(key=lambda unit: (-len(unit), _drawn(seed, unit)))
    for place, unit in enumerate(free):
        unit_labels = Counter(entry.label for entry in unit)
        open_to = [split for split in share_of if split in empty and len(free) - place <= len(empty)]
        open_to = open_to or [split for split in share_of if 2 * room[split] >= len(unit)]
        open_to = open_to or [max(share_of, key=room.__getitem__)]
        put(unit, max(open_to, key=lambda split: _need(lacking[split], unit_labels, labels)))
    return split_of


def _need(lacking: Mapping[str, float], counts: Mapping[str, int], labels: Mapping[str, int]) -> tuple[float, float]:
    return sum(number * lacking[label] / labels[label] for label, number in counts.items()), sum(lacking.values())


def _drawn(seed: int, unit: Unit) -> str:
    first = min(entry.image for entry in unit)
    return hashlib.sha256(f"{seed} {first}".encode()).hexdigest()
