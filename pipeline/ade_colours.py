"""The colours of the ADE20K classes, in which a ControlNet for segmentation maps reads them. Data and a look-up.

The numbers are those of the ADE20K challenge's palette for its 150 classes, the ones that masks of street scenes and
single objects need. A name that is not here is black, as unlabelled pixels are in ADE20K.
"""

from __future__ import annotations

from core.data_files import DataTable

Colour = tuple[int, int, int]

UNLABELLED: Colour = (0, 0, 0)
COLOURS = DataTable(__file__, tuple[int, int, int], "colours")
SAME = DataTable(__file__, str, "same")
"""Names that other data sets give to what ADE20K calls otherwise, or counts to something larger."""


def colour_of(name: str) -> Colour:
    """The colour of a class by its name, in singular or plural; `UNLABELLED` for one that ADE20K does not have."""
    plain = " ".join(name.lower().split())
    for tried in (plain, plain.removesuffix("s")):
        known = SAME.get(tried, tried)
        if known in COLOURS:
            return COLOURS[known]
    return UNLABELLED
