"""Make safe and unique file names from any text, and recognise the usual names of splits."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from core.errors import UserError
from core.test_sets import Split

UNSPLIT = "unsplit"
"""Name of the folder for images without a split. Not “all”: in `datasets` that means all splits together."""
SPLIT_OF: Mapping[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval"), "test"),
    UNSPLIT: "",
}  # type: ignore[assignment]
"""Split by each usual name of its folder, in lower case."""
LONGEST = 120


def name_of_file(words: str) -> str:
    """Return a file name, without ending, that every operating system accepts."""
    return re.sub(r"[^\w.-]+", "-", words).strip("-.")[:LONGEST] or "image"


def folded(name: str) -> str:
    """Return a normalised name. It is equal for all names that some file system treats as the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def split_folder(split: Split, validation: str = "validation") -> str:
    """Return the folder name of a split. `validation` is the format's folder name for the split "validation"."""
    return UNSPLIT if not split else validation if split == "validation" else split


class Names:
    """Gives each text a unique and safe name. Repeated names get a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        """Next number to try for each name. It saves time if many names are equal."""

    def take(self, words: str) -> str:
        """Turn a text into a safe name that no earlier call returned."""
        stem = name_of_file(unicodedata.normalize("NFC", words))
        name, short = stem, stem[: LONGEST - 10]
        number = self._next.get(folded(short), 2)
        while folded(name) in self._taken:
            name, number = f"{short}-{number}", number + 1
        self._next[folded(short)] = number
        self._taken.add(folded(name))
        return name


def standard(split: str) -> str:
    """Return the studio's name of a split: "train", "validation" or "test". Unknown names stay as they are."""
    low = split.lower()
    return SPLIT_OF.get(low, SPLIT_OF.get(re.sub(r"(19|20)\d\d$", "", low), split))  # a name such as train2017


def choose_split(split: str, there: Iterable[str], what: str) -> str:
    """Return the requested split, or the only split if none is requested. `there` has the splits of the data set named
    `what`, with "" for items without a split. The request “unsplit” returns "". Raises UserError if the requested split
    does not exist, or if there are several splits and none is requested.
    """
    names = sorted({name or UNSPLIT for name in there})
    if names == [UNSPLIT] and split not in ("", UNSPLIT):
        raise UserError(f"{what} has no splits: leave the split out.", field="split")
    if not split and len(names) > 1:
        raise UserError(f"Choose a split of {what}: {', '.join(names)}.", field="split")
    same = [name for name in names if not split or name == split]
    same = same or [name for name in names if standard(name) == standard(split)]
    if len(same) != 1:
        raise UserError(f"There is no split “{split}” in {what}: it has {', '.join(names)}.", field="split")
    return "" if same[0] == UNSPLIT else same[0]


def choose_option(option: str, value: str, there: Sequence[str]) -> str:
    """Return `value` if it is in `there`. For an empty `value`, return the only element. Otherwise, raise UserError."""
    if value in there:
        return value
    if not value and len(there) == 1:
        return there[0]
    problem = f"There is no {option} “{value}”" if value else f"Choose a {option} by the option {option}"
    raise UserError(f"{problem}: there is {', '.join(there) or 'none'}.", field=option)
