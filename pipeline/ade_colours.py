"""Colours of ADE20K classes, on which ControlNets for segmentation maps were trained. Only data and a look-up.

The colours come from the ADE20K challenge. Of its 150 classes, the table has the ones that masks of street scenes and
single objects need. Any other class is black, as unlabelled pixels are in ADE20K.
"""

from __future__ import annotations

from core.data_files import DataTable

Colour = tuple[int, int, int]

UNLABELLED: Colour = (0, 0, 0)
COLOURS = DataTable(__file__, tuple[int, int, int], "colours")
SAME = DataTable(__file__, str, "same")
"""Maps class names of other data sets to the ADE20K class that means the same or includes them."""


def colour_of(name: str) -> Colour:
    """Return the colour of a class by its name, in singular or plural, or `UNLABELLED` if it is not in the table."""
    plain = " ".join(name.lower().split())
    for tried in (plain, plain.removesuffix("s")):
        known = SAME.get(tried, tried)
        if known in COLOURS:
            return COLOURS[known]
    return UNLABELLED
