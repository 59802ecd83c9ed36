"""Plain words beside the terms of the field, which explain each stage to somebody who does not know its name."""

from __future__ import annotations

from collections.abc import Mapping

from core.data_files import DataTable

PLAIN: Mapping[str, str] = DataTable(__file__, str, "plain")
"""Words after the title of a stage; a stage of a recipe of one's own has none."""
EXPLAINED: Mapping[str, str] = DataTable(__file__, str, "explained")
"""One or two sentences on each stage by its title, for a first reading."""
FIRST_TIME = " · the first time, the models are loaded too"
"""Text after the seconds of work whose progress is still unknown."""
COUNTERFACTUAL_TESTING = (
    "Counterfactual testing changes something in a picture that should make no difference, such as the weather, and "
    "asks the model under test again: where it was right before and is wrong now, you have found a fault.",
    "The studio makes such pictures from one of yours in stages, and you can look at what each makes and change "
    "it before the next.",
)
"""The purpose of the studio, in two sentences."""
