"""What a person decides about a result, and which model under test looks at it."""

from __future__ import annotations

from dataclasses import replace
from random import SystemRandom

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.seeds import LARGEST
from pipeline.settings import UnderTestSettings
from pipeline.stages.generation import PlannedImage
from storage.types import VERDICTS, StoredTestCase
from ui.actions.data import Action, Data, text_of
from ui.actions.settings import change_settings
from ui.generating import start_images
from ui.studio import Studio

LONGEST_CLASSES = 20_000
"""Characters in the names of a file's classes; a thousand of them take some twelve thousand."""


def _review(studio: Studio, run_id: str, data: Data) -> None:
    """Accept or reject a test case, or take that back ("open")."""
    verdict = next((known for known in VERDICTS if known == text_of(data, "verdict")), None)
    if verdict is None:
        raise UserError("A result is accepted, rejected, or open again.")
    reason = " ".join(text_of(data, "reason").split()) if verdict == "rejected" else ""
    studio.workspace.append_review(_case(studio, run_id, data).id, verdict, reason)


def _regenerate(studio: Studio, run_id: str, data: Data) -> None:
    """Draw the caption of a test case once more, with a seed of its own and the run's settings as they are now."""
    caption = replace(_case(studio, run_id, data).counterfactual, used=True)
    start_images(studio, run_id, (PlannedImage(caption, SystemRandom().randint(0, LARGEST)),))


def _under_test(studio: Studio, run_id: str, data: Data) -> None:
    classes = str(data.get("classes") or "")
    if len(classes) > LONGEST_CLASSES:
        raise UserError(f"The names of the classes are too long: at most {LONGEST_CLASSES} characters are taken.")
    given = {"source": text_of(data, "source"), "name": text_of(data, "model").strip()}
    given["file"] = text_of(data, "file").strip()
    if given["source"] == "profile":
        given = {"source": "profile"}
    try:
        wanted = UnderTestSettings.model_validate({**given, "classes": classes if given.get("file") else ""})
    except ValidationError as error:
        raise UserError(
            "Pick where the model under test comes from: the profile, torchvision, timm or a file."
        ) from error
    if wanted.source in ("torchvision", "timm") and not wanted.name:
        raise UserError("Give the name of the model under test, such as resnet50.")
    if wanted.source == "file" and not wanted.file:
        raise UserError("Give the path of the checkpoint file of the model under test.")
    change_settings(studio, run_id, data, lambda plain: plain.update(under_test=wanted.model_dump(mode="json")))
    studio.readings.try_again(wanted)


def _again(studio: Studio, run_id: str, _data: Data) -> None:
    run = studio.workspace.run(run_id)
    wanted = studio.readings.model_of(run, studio.settings(run))
    if wanted is not None:
        studio.readings.try_again(wanted)


def _case(studio: Studio, run_id: str, data: Data) -> StoredTestCase:
    try:
        number = int(text_of(data, "case"))
    except ValueError:
        number = 0
    for case in studio.workspace.run(run_id).test_cases:
        if case.id == number:
            return case
    raise UserError("This result is not of this run: pick one of those shown.")


ACTIONS: dict[str, Action] = {
    "review": _review,
    "regenerate": _regenerate,
    "under-test": _under_test,
    "under-test-again": _again,
}
