"""Colours of ADE20K classes, on which ControlNets for segmentation maps were trained. Data and a look-up.

They are from the ADE20K challenge's palette. Of its 150 classes, those are here that masks of street scenes and single
objects need. Any other name is black, as unlabelled pixels are in ADE20K.
"""

from __future__ import annotations

from core.data_files import DataTable

Colour = tuple[int, int, int]

UNLABELLED: Colour = (0, 0, 0)
COLOURS = DataTable(__file__, tuple[int, int, int], "colours")
SAME = DataTable(__file__, str, "same")
"""Names of other data sets for classes that ADE20K names differently or includes in a larger one."""


def colour_of(name: str) -> Colour:
    """Return the colour of a class by its name, in singular or plural, or `UNLABELLED` for one not in ADE20K."""
    plain = " ".join(name.lower().split())
    for tried in (plain, plain.removesuffix("s")):
        known = SAME.get(tried, tried)
        if known in COLOURS:
            return COLOURS[known]
    return UNLABELLED
