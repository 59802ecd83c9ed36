"""The mask of a run. A file itself comes by another way: see `ui.routes`."""

from __future__ import annotations

from ui import masks
from ui.actions.data import Action, Data, text_of
from ui.studio import Studio


def _sample(studio: Studio, run_id: str, _data: Data) -> None:
    masks.take_sample_mask(studio, run_id)


def _classes(studio: Studio, run_id: str, data: Data) -> None:
    masks.name_classes(studio, run_id, text_of(data, "value"))


def _drop(studio: Studio, run_id: str, _data: Data) -> None:
    studio.workspace.set_mask(run_id, None)


ACTIONS: dict[str, Action] = {"mask-sample": _sample, "mask-classes": _classes, "mask-drop": _drop}
