"""The question templates that a study can begin with. Data only; nothing is ever pre-selected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from core.csv_tables import cells
from core.studies import Question, Rules

CONSENT = (
    "Taking part is voluntary. You will judge pictures, some of them made by a computer. We keep your answers, the "
    "time that each took and your worker name, but neither your name nor your address. You may stop at any time; the "
    "answers that you have sent by then are kept. The answers may be published without anything that points to you."
)
"""What a worker agrees to, unless the lead writes something else."""


@dataclass(frozen=True)
class Template:
    """Questions with what belongs to them; a lead may change every part of it before the start."""

    name: str
    title: str
    questions: tuple[Question, ...]
    show_source: bool
    show_captions: bool
    instructions: str
    consent: str = CONSENT
    task: str = "any"
    """The kind of task whose images it is about, "classification" or "segmentation"; "any" for no one kind."""

    def rules(self) -> Rules:
        """Draft rules that begin with this template; all else is the paper's (5 votes, 4 equal, 95 %, 50 finished)."""
        return Rules(template=self.name, **cells(self, "questions show_source show_captions instructions consent"))


_CLASSIFICATION = Template(
    name="classification",
    title="Classification: does the image still show its class?",
    task="classification",
    questions=(Question("valid", "Does the image still show a {label}?", "yes-no", valid=("yes",)),),
    show_source=False,
    show_captions=False,
    instructions=(
        "You see one picture and one question. Answer yes when the thing that is named can be recognised, even if its "
        "colour, its surroundings, the weather or the style are unusual. Answer no when it is missing, or so distorted "
        "that you would call it something else."
    ),
)

_PRESERVATION = Template(
    name="preservation",
    title="Driving: are road, vehicles and pedestrians kept?",
    task="segmentation",
    questions=(
        Question(
            "road",
            "Does the road run where it runs in the original image?",
            "yes-no",
            valid=("yes",),
            only_with="road",
        ),
        Question(
            "vehicles",
            "Are the vehicles of the original image still there, in the same places?",
            "yes-no",
            valid=("yes",),
            only_with="vehicle",
        ),
        Question(
            "pedestrians",
            "Are the pedestrians of the original image still there, in the same places?",
            "yes-no",
            valid=("yes",),
            only_with="pedestrian",
        ),
    ),
    show_source=True,
    show_captions=False,
    instructions=(
        "You see two pictures side by side, the original marked as such. Weather, light, season, colours and "
        "background may differ. Judge only what each question names: answer yes when it is still there and in the "
        "same place, no when it is missing, moved, or turned into something else."
    ),
)

_LANCE = Template(
    name="lance",
    title="LANCE: realism, edit, fidelity, label, ethics",
    questions=(
        Question(
            "realism",
            "How realistic is the edited image?",
            "scale",
            low="not realistic at all",
            high="could be a photograph",
        ),
        Question(
            "edit-success",
            "How well does the edited image show the change that the marked words describe?",
            "scale",
            low="not at all",
            high="completely",
        ),
        Question(
            "fidelity",
            "Apart from that change, how well is the original image kept?",
            "scale",
            low="a different image",
            high="everything else is kept",
        ),
        Question("label-consistency", "Does the edited image still show a {label}?", "yes-no", valid=("yes",)),
        Question("ethical-concern", "Does the edited image raise an ethical concern?", "yes-no"),
        Question(
            "concern",
            "What is the concern?",
            "text",
            follows="ethical-concern",
            follows_answer="yes",
        ),
    ),
    show_source=True,
    show_captions=True,
    instructions=(
        "You see an original image and an edited one, with the caption of each; the words that changed are marked. "
        "Judge the edited image. Realism, success of the edit and fidelity are separate: an image may be realistic and "
        "yet miss the edit. An ethical concern is anything that offends, stereotypes, or shows violence or nudity."
    ),
)

_OWN = Template(
    name="own",
    title="Questions of my own",
    questions=(),
    show_source=False,
    show_captions=False,
    instructions="",
)

TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {template.name: template for template in (_CLASSIFICATION, _PRESERVATION, _LANCE, _OWN)}
)
"""By name, in the order in which a lead is offered them."""


def task_of(template: str) -> str:
    """The kind of task whose images a template is about, by its name; "any" for none, or one not known here."""
    return TEMPLATES[template].task if template in TEMPLATES else "any"
