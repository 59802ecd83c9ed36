"""The colours of the ADE20K classes, in which a ControlNet for segmentation maps reads them. Data and a look-up.

The numbers are those of the ADE20K challenge's palette for its 150 classes, the ones that masks of street scenes and
single objects need. A name that is not here is black, as unlabelled pixels are in ADE20K.
"""

from __future__ import annotations

Colour = tuple[int, int, int]

UNLABELLED: Colour = (0, 0, 0)
COLOURS: dict[str, Colour] = {
    "wall": (120, 120, 120),
    "building": (180, 120, 120),
    "sky": (6, 230, 230),
    "tree": (4, 200, 3),
    "road": (140, 140, 140),
    "grass": (4, 250, 7),
    "sidewalk": (235, 255, 7),
    "person": (150, 5, 61),
    "earth": (120, 120, 70),
    "mountain": (143, 255, 140),
    "plant": (204, 255, 4),
    "water": (61, 230, 250),
    "sea": (9, 7, 230),
    "house": (255, 9, 224),
    "car": (0, 102, 200),
    "field": (112, 9, 255),
    "fence": (255, 184, 6),
    "rock": (255, 41, 10),
    "sand": (160, 150, 20),
    "path": (255, 31, 0),
    "bridge": (255, 82, 0),
    "flower": (255, 0, 0),
    "hill": (255, 102, 0),
    "boat": (173, 255, 0),
    "bus": (255, 0, 245),
    "truck": (255, 0, 20),
    "tower": (255, 184, 184),
    "streetlight": (0, 71, 255),
    "bicycle": (255, 245, 0),
    "motorbike": (163, 0, 255),
    "traffic light": (41, 0, 255),
    "traffic sign": (255, 5, 153),
    "animal": (255, 0, 122),
    "pole": (51, 0, 255),
}
SAME: dict[str, str] = {
    "lane marking": "road",
    "street": "road",
    "pavement": "sidewalk",
    "vehicle": "car",
    "van": "car",
    "pedestrian": "person",
    "rider": "person",
    "vegetation": "tree",
    "terrain": "grass",
    "ground": "earth",
    "motorcycle": "motorbike",
    "bike": "bicycle",
    "sign": "traffic sign",
    "lamp": "streetlight",
    "bird": "animal",
    "butterfly": "animal",
    "ship": "boat",
    "lighthouse": "tower",
}
"""Names that other data sets give to what ADE20K calls otherwise, or counts to something larger."""


def colour_of(name: str) -> Colour:
    """The colour of a class by its name, in singular or plural; `UNLABELLED` for one that ADE20K does not have."""
    plain = " ".join(name.lower().split())
    for tried in (plain, plain.removesuffix("s")):
        known = SAME.get(tried, tried)
        if known in COLOURS:
            return COLOURS[known]
    return UNLABELLED
