"""Groups images of a test set that must stay together, and assigns them to splits. Pure.

Knowledge of one image helps a model with others of the same source, and with those of a similar source. So sources are
split, similar ones together, and never single images.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from core.perceptual_hashes import Groups, join_alike
from core.test_sets import SetEntry, Split

Unit = tuple[SetEntry, ...]
"""Images that must be in one split."""


def units_of(
    entries: Sequence[SetEntry], hashes: Mapping[str, int], twins: Iterable[tuple[str, str]] = ()
) -> tuple[Unit, ...]:
    """Return groups of images that must stay in one split. Images are grouped if they share a source, if their sources
    look alike or are `twins`, or if one source was made from another. `hashes` has perceptual hashes, by SHA-256 of a
    source, or of an image with an external source.
    """
    groups: Groups[str] = Groups()
    for entry in entries:
        groups.join(entry.image, entry.source)
    join_alike(groups, hashes)
    for one, other in twins:
        groups.join(one, other)
    units: dict[str, list[SetEntry]] = {}
    for entry in entries:
        units.setdefault(groups.of(entry.image), []).append(entry)
    return tuple(tuple(unit) for unit in units.values())


def splits_of(unit: Unit) -> tuple[Split, ...]:
    """Return the splits of a unit's images, without ""; more than one is a leak."""
    return tuple(sorted({entry.split for entry in unit if entry.split}))


def leaks_in(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the units that are in more than one split."""
    return tuple(unit for unit in units if len(splits_of(unit)) > 1)


def proposed(units: Sequence[Unit], shares: Mapping[Split, float], seed: int, keep: bool) -> dict[str, Split]:
    """Return a split for every image, by hash: as many as `shares` say, as far as whole units allow, equally for each
    label.

    Units go, the largest first and equal sizes in an order drawn by `seed`, to the split that lacks most of their
    labels: the rule of iterative stratification (Sechidis, Tsoumakas and Vlahavas, "On the Stratification of
    Multi-Label Data", 2011), needed for units of several labels. With few images a label says little: a fifth of three
    is less than one, so by labels alone the largest split would get all of them. Hence a unit only goes where it brings
    the number of images closer to the share, and no split stays empty while there are units for it.

    With `keep` a unit that has a split keeps it; such a unit must have only one. At least one share is above 0.
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
        put(
            unit,
            max(
                open_to or [max(share_of, key=room.__getitem__)],
                key=lambda split: _need(lacking[split], unit_labels, labels),
            ),
        )
    return split_of


def _need(lacking: Mapping[str, float], counts: Mapping[str, int], labels: Mapping[str, int]) -> tuple[float, float]:
    return sum(number * lacking[label] / labels[label] for label, number in counts.items()), sum(lacking.values())


def _drawn(seed: int, unit: Unit) -> str:
    first = min(entry.image for entry in unit)
    return hashlib.sha256(f"{seed} {first}".encode()).hexdigest()
