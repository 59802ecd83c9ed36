"""Sets of catalogue entries, with one bit for each entry. Pure functions; no SQL.

In memory a set is an array of bytes. Entry n is bit `n % 8` of byte `n // 8`. A set of a million entries takes 125 kB,
and `&` of two sets takes a fraction of a millisecond. In the database each chunk of 16,384 entries is a row. A chunk
with few entries stores their sorted places as numbers of 16 bits, any other chunk stores its bits. Roaring bitmaps have
the same two kinds of containers (Chambi, Lemire, Kaser, Godin, Software: Practice and Experience 46(5), 2016).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

CHUNK_BITS = 14
"""Number of low bits of an entry's number that give its place in its chunk."""
CHUNK = 1 << CHUNK_BITS
KEY_BITS = 24
"""Number of low bits of a stored chunk's key that hold the chunk's number. The higher bits hold the value's number."""
BYTES = CHUNK // 8
BINS = 50
"""Number of bins for each unit of a measure. Figures of checks range from -1 to 1."""
REVIEWS = 409_600.0
"""Width of `BINS` bins of the measures "reviewed" and "source": a bin covers 8,192 numbers. "reviewed" is the number of
the row of an entry's latest review. "source" is minus the catalogue number of the first entry with the same source."""
SLACK = 1e-9
"""Distance from the end of a bin within which rounding may put a number into the neighbouring bin."""
Bits = NDArray[np.uint8]
Numbers = NDArray[np.int64]


def changed_set(members: bytes, changes: Mapping[int, bool]) -> bytes:
    """Return the chunk `members` (b"" if empty) with entries added (True) or removed (False), by place in the chunk."""
    flags = np.unpackbits(chunk_bits(members), bitorder="little")
    flags[list(changes)] = list(changes.values())
    return stored_places(np.flatnonzero(flags))


def listed(text: str | None) -> Numbers:
    """Parse comma-separated numbers of SQLite's group_concat, the fastest way to read many numbers."""
    return np.fromstring(text or "", dtype=np.int64, sep=",")


def stored_places(places: Numbers) -> bytes:
    """Return a chunk of a set in stored form. `places` are the entries' numbers within the chunk, ascending."""
    if 2 * len(places) < BYTES:
        return places.astype("<u2").tobytes()
    return _bits(places, BYTES).tobytes()


def _bits(places: Numbers, size: int) -> Bits:
    flags = np.zeros(8 * size, dtype=np.uint8)
    flags[places] = 1
    return np.packbits(flags, bitorder="little")


def chunk_bits(members: bytes) -> Bits:
    """Convert a chunk from its stored form to bits."""
    if len(members) == BYTES:
        return np.frombuffer(members, dtype=np.uint8)
    return _bits(np.frombuffer(members, dtype="<u2").astype(np.int64), BYTES)


def none_of(chunks: int) -> Bits:
    """Return an empty set with room for `chunks` chunks."""
    return np.zeros(chunks * BYTES, dtype=np.uint8)


def of_rows(rows: Iterable[tuple[int, bytes]], chunks: int) -> Bits:
    """Return the union of stored chunks, given as pairs (number of the chunk, its members)."""
    dense, few = _parted(rows)
    # Set the bits of all chunks at once, as chunk by chunk takes longer than the rest of a filter.
    union = of_entries(few, chunks) if len(few) else none_of(chunks)
    for number, members in dense:
        if number < chunks:
            union[number * BYTES : (number + 1) * BYTES] |= np.frombuffer(members, dtype=np.uint8)
    return union


def inside(rows: Iterable[tuple[int, bytes]], bits: Bits) -> Numbers:
    """Return the entries that are both in the set `bits` and in these stored chunks."""
    dense, few = _parted(rows)
    parts = [entries_of(np.frombuffer(members, dtype=np.uint8)) + (number << CHUNK_BITS) for number, members in dense]
    entries = np.concatenate([few, *parts])
    return entries[has(bits, entries)]


def common(rows: Iterable[tuple[int, bytes]], bits: Bits) -> int:
    """Return the number of entries that are both in the set `bits` and in these stored chunks."""
    dense, few = _parted(rows)
    number = int(np.count_nonzero(has(bits, few)))
    for chunk, members in dense:
        part = bits[chunk * BYTES : (chunk + 1) * BYTES]
        if len(part):
            number += size(part & np.frombuffer(members, dtype=np.uint8))
    return number


def _parted(rows: Iterable[tuple[int, bytes]]) -> tuple[list[tuple[int, bytes]], Numbers]:
    dense: list[tuple[int, bytes]] = []
    numbers: list[int] = []
    lists: list[bytes] = []
    for number, members in rows:
        if len(members) == BYTES:
            dense.append((number, members))
        else:
            numbers.append(number)
            lists.append(members)
    places = np.frombuffer(b"".join(lists), dtype="<u2").astype(np.int64)
    firsts = np.array(numbers, dtype=np.int64) << CHUNK_BITS
    return dense, places + np.repeat(firsts, [len(members) // 2 for members in lists])


def of_entries(entries: Sequence[int] | Numbers, chunks: int) -> Bits:
    """Return the set of these entries. Entries beyond the last chunk are left out."""
    numbers = np.asarray(entries, dtype=np.int64)
    return _bits(numbers[(numbers >= 0) & (numbers < chunks * CHUNK)], chunks * BYTES)


def entries_of(bits: Bits) -> Numbers:
    """Return the entries of a set, ascending."""
    return np.flatnonzero(np.unpackbits(bits, bitorder="little"))


def size(bits: Bits) -> int:
    """Return the number of entries in a set."""
    return int(np.bitwise_count(bits).sum(dtype=np.int64))


def has(bits: Bits, entries: Numbers) -> NDArray[np.bool_]:
    """Return for each entry True if the set contains it. Entries beyond the last chunk are not in the set."""
    if not len(bits):
        return np.zeros(len(entries), dtype=bool)
    inside = np.minimum(entries, 8 * len(bits) - 1)
    return ((bits[inside >> 3] >> (inside & 7).astype(np.uint8)) & 1).astype(bool) & (entries < 8 * len(bits))


def from_place(bits: Bits, place: int, backwards: bool) -> int | None:
    """Return the entry at a zero-based place of the set, in ascending or `backwards` order; None beyond its end."""
    by_chunk = np.bitwise_count(bits).reshape(-1, BYTES).sum(axis=1, dtype=np.int64)
    total = int(by_chunk.sum())
    if not 0 <= place < total:
        return None
    rank = total - 1 - place if backwards else place
    ends = np.cumsum(by_chunk)
    chunk = int(np.searchsorted(ends, rank, side="right"))
    before = int(ends[chunk - 1]) if chunk else 0
    inside = entries_of(bits[chunk * BYTES : (chunk + 1) * BYTES])
    return chunk * CHUNK + int(inside[rank - before])


def place_of(bits: Bits, entry: int, backwards: bool) -> int | None:
    """Return the zero-based place of an entry in the set, ascending or `backwards`; None if the set lacks the entry."""
    if not has(bits, np.array([entry]))[0]:
        return None
    before = size(bits[: entry >> 3]) + (int(bits[entry >> 3]) & ((1 << (entry & 7)) - 1)).bit_count()
    return size(bits) - 1 - before if backwards else before


def beyond(bits: Bits, entry: int, backwards: bool) -> Iterator[int]:
    """Yield entries above `entry`, ascending. If `backwards`, yield lower ones, descending. `entry` may be absent."""
    chunks = len(bits) // BYTES
    first = min(max(entry >> CHUNK_BITS, 0), chunks - 1) if chunks else 0
    for chunk in range(first, -1, -1) if backwards else range(first, chunks):
        part = bits[chunk * BYTES : (chunk + 1) * BYTES]
        if not part.any():
            continue
        inside = entries_of(part) + chunk * CHUNK
        if backwards:
            yield from inside[inside < entry][::-1].tolist()
        else:
            yield from inside[inside > entry].tolist()


def bin_of(number: float) -> int:
    """Return the bin of a number, as the SQL view `catalogue_number_facets` does. Bins ascend with the numbers."""
    return int(min(max(number, -1000.0), 1000000.0) * BINS + 1000000) - 1000000


def bins_of(numbers: NDArray[np.float64]) -> Numbers:
    """Return the bin of each number."""
    return (np.clip(numbers, -1000.0, 1000000.0) * BINS + 1000000).astype(np.int64) - 1000000


def bin_span(place: int) -> tuple[float, float]:
    """Return the lower and upper end of a bin, a little wider than exact, as rounding may decide a number's bin."""
    low = place / BINS - SLACK if place > bin_of(-math.inf) else -math.inf
    return low, (place + 1) / BINS + SLACK if place < bin_of(math.inf) else math.inf
