"""Plain words beside the terms of the field, which explain each stage to somebody who does not know its name."""

from __future__ import annotations

from collections.abc import Mapping

from core.types import GENERATION, StageName

PLAIN: Mapping[StageName, str] = {
    "caption": "what the picture shows",
    "region": "where it may change",
    "keywords": "what may change",
    "alternatives": "into what",
    "counterfactuals": "the new captions",
    GENERATION: "the new images",
}
"""Words after the name of a stage in its title; a stage of another recipe has none."""

EXPLAINED: Mapping[StageName, str] = {
    "caption": "What the picture shows, in several sentences. A model writes it, and you can correct it.",
    "keywords": "The words of the caption that may change, such as weather, colour or time of day. What the task "
    "needs, such as its label, is protected and stays.",
    "alternatives": "What each keyword may become: snowy or foggy instead of sunny.",
    "counterfactuals": "The caption again, with one or more things changed, and checked word by word.",
    GENERATION: "One image for each new caption. It keeps the shapes of the source, and is drawn only when you say so.",
}
"""One or two sentences on each stage, for a first reading."""
FIRST_TIME = " · the first time, the models are loaded too"
"""Text after the seconds of work whose progress is still unknown."""
COUNTERFACTUAL_TESTING = (
    "Counterfactual testing changes something in a picture that should make no difference, such as the weather, and "
    "asks the model under test again: where it was right before and is wrong now, you have found a fault.",
    "The studio makes such pictures from one of yours in five stages, and you can look at what each makes and change "
    "it before the next.",
)
"""The purpose of the studio, in two sentences."""
