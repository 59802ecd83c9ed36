"""The command line: `python -m pipeline augment IMAGE ...` does the whole job, `again` repeats it, `profiles` lists.

Results go to stdout, a path a line; progress and remarks to stderr. A person's mistake ends with one sentence and exit
code 2; a Ctrl-C keeps what is finished and ends with 130.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline import manifest
from pipeline.checks import caption_checks, counterfactual_checks, failed
from pipeline.conditioning import NamedMask
from pipeline.errors import Cancelled, UserError
from pipeline.freshness import image_sha
from pipeline.images import read_image
from pipeline.models import load_models
from pipeline.options import asked_mask, asked_settings, asked_task, changed_settings
from pipeline.profile import Profile, load_profile, profile_names
from pipeline.progress import Pace, Progress, stop_if
from pipeline.provenance import made_with
from pipeline.runner import Made, Runner
from pipeline.seeds import LARGEST
from pipeline.terminal import ProgressLine, stop_on_interrupt
from pipeline.types import StageName, StageValue, Task, TestCase


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except (Cancelled, KeyboardInterrupt):
        return 130


def augment(options: argparse.Namespace) -> int:
    """All five stages for one image."""
    profile = load_profile(options.profile)
    settings = changed_settings(profile.settings, asked_settings(options))
    task = asked_task(options, profile)
    picture = read_image(options.image)
    mask = asked_mask(options, picture.image.size)
    folder = Path(options.out)
    models = load_models(profile)
    models.check()
    runner, drawn_with = Runner(profile, models), made_with(profile, settings.conditioning.kind)
    asked = manifest.Manifest(
        task=task,
        profile=profile.model_dump(mode="json"),
        seed=options.seed,
        settings=settings,
        prompts=runner.prompts,
        source_name=Path(options.image).name,
        source_sha256=image_sha(picture.image),
        source_notes=picture.notes,
        values={},
        images=(),
        complete=False,
        versions=manifest.versions(),
        mask_sha256=image_sha(mask.image) if mask else "",
        mask_classes=mask.classes if mask else {},
    )
    earlier = _open_folder(folder, asked)
    line = ProgressLine()
    for note in (*picture.notes, *(mask.notes if mask else ())):
        line.say(note)
    manifest.save_png(picture.image, folder / manifest.SOURCE)
    if mask is not None:
        manifest.save_png(mask.image, folder / manifest.MASK)
    values: dict[StageName, StageValue[Any]] = {}
    records: list[manifest.ImageRecord] = []
    kept = {(image.counterfactual, image.seed): image for image in earlier.images}
    try:
        with stop_on_interrupt() as cancelled:
            for made in runner.augment(
                picture.image,
                task,
                settings,
                options.seed,
                earlier.values,
                [manifest.load_case(image, folder) for image in earlier.images],
                line,
                cancelled,
                NamedMask(mask.image, mask.classes) if mask else None,
            ):
                if isinstance(made.value, TestCase):
                    known = kept.get((made.value.counterfactual, made.value.seed)) if made.reused else None
                    number = len(kept) + sum(image not in earlier.images for image in records) + 1
                    so_far = _with(asked, values, records, complete=False)
                    inside = manifest.Inside(so_far, picture.image, mask.image if mask else None, drawn_with)
                    records.append(known or manifest.record(made.value, folder, number, inside))
                    line.clear()
                    print(folder / records[-1].file, flush=True)
                else:
                    values[made.stage] = made.value
                    _remark(line, made, values, task)
    except (Cancelled, UserError):
        line.clear()
        path = manifest.write(_with(asked, values, records, complete=False), folder)
        line.say(f"Stopped. Images kept: {len(records)}, see {path}. The same command goes on from here.")
        raise
    line.clear()
    print(manifest.write(_with(asked, values, records, complete=True), folder), flush=True)
    return 0


def again(options: argparse.Namespace) -> int:
    """Every image of a `run.json` made again; 0 when all have the same pixels, 1 when one has not."""
    path = Path(options.run)
    held = manifest.read(path)
    wanted = [image for image in held.images if options.image in (None, image.file)]
    if not wanted:
        raise UserError(f"There is no image {options.image or ''} in {path}: nothing to make again.")
    try:
        profile = Profile.model_validate(held.profile)
    except ValidationError as error:
        raise UserError(f"The profile in {path} is damaged or was changed by hand: it cannot be used.") from error
    source = manifest.load_png(path.parent / manifest.SOURCE, held.source_sha256)
    folder = _make_folder(Path(options.out))
    if folder.resolve() == path.parent.resolve():
        raise UserError("The images would replace those they are compared with: choose another --out.")
    models = load_models(profile)
    models.check()
    mask = manifest.load_mask(held, path.parent)
    named = NamedMask(mask, held.mask_classes) if mask is not None else None
    caption = held.values["caption"].value.text if "caption" in held.values else ""
    method = Runner(profile, models, held.prompts).method(caption, named)
    inside = manifest.Inside(held, source, mask, made_with(profile, held.settings.conditioning.kind))
    line, pace, differ = ProgressLine(), Pace(len(wanted) * held.settings.generation.steps), 0
    with stop_on_interrupt() as cancelled:
        for number, image in enumerate(wanted):

            def on_step(done: int, total: int, number: int = number) -> None:
                stop_if(cancelled)
                steps = number * pace.total // len(wanted) + done * pace.total // len(wanted) // max(total, 1)
                note = f"image {number + 1} of {len(wanted)}"
                line(Progress("generation", steps, pace.total, pace.seconds_left(steps), note))

            stop_if(cancelled)
            case = method.make(
                source,
                held.task,
                image.counterfactual,
                held.settings.conditioning,
                held.settings.generation,
                image.seed,
                on_step,
            )
            # With what was noted then: the same pixels are then the same file, byte for byte.
            noted = replace(case, seconds=image.seconds, checks=image.checks)
            manifest.save_case(noted, folder / image.file, inside)
            same = image_sha(case.image) == image.sha256
            differ += not same
            line.clear()
            print(f"{folder / image.file}  {'same pixels' if same else 'DIFFERENT pixels'}", flush=True)
    if differ:
        now = manifest.versions()
        changed = [
            f"{name} {then}, now {now.get(name)}" for name, then in held.versions.items() if now.get(name) != then
        ]
        reason = (
            f"Other versions: {'; '.join(changed)}."
            if changed
            else "All versions are the same; the weights may not be."
        )
        line.say(f"{differ} of {len(wanted)} images differ. {reason}")
    return 1 if differ else 0


def profiles(_options: argparse.Namespace) -> int:
    """The profiles with their titles."""
    for name in profile_names():
        print(f"{name:<10} {load_profile(name).title}")
    return 0


def settings_list(options: argparse.Namespace) -> int:
    """Every setting of a profile: its value and what it does."""
    held = load_profile(options.profile).settings
    for stage in type(held).model_fields:
        for name, field in type(getattr(held, stage)).model_fields.items():
            print(f"{stage + '.' + name:<36} {getattr(getattr(held, stage), name)!s:<8} {field.description}")
    return 0


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The folder {folder} cannot be made ({error.strerror or error}): choose another one."
        ) from error
    return folder


def _open_folder(folder: Path, asked: manifest.Manifest) -> manifest.Manifest:
    """What the folder holds of the same request already; `asked` itself when it is new. Raises UserError otherwise."""
    _make_folder(folder)
    if not (folder / manifest.FILE).exists():
        return asked
    held = manifest.read(folder / manifest.FILE)
    for what, then, now in (
        ("image", held.source_sha256, asked.source_sha256),
        ("task", held.task, asked.task),
        ("profile", held.profile, asked.profile),
        ("prompts", held.prompts, asked.prompts),
        ("settings", held.settings, asked.settings),
        ("seed", held.seed, asked.seed),
        ("mask", (held.mask_sha256, held.mask_classes), (asked.mask_sha256, asked.mask_classes)),
    ):
        if then != now:
            raise UserError(f"The folder {folder} holds a run with another {what}: choose another --out.")
    return held


def _with(
    asked: manifest.Manifest,
    values: dict[StageName, StageValue[Any]],
    records: list[manifest.ImageRecord],
    complete: bool,
) -> manifest.Manifest:
    return manifest.Manifest(**{**vars(asked), "values": values, "images": tuple(records), "complete": complete})


def _remark(line: ProgressLine, made: Made, values: dict[StageName, StageValue[Any]], task: Task) -> None:
    """Says what a stage gave, and what a person should know of it."""
    value = values[made.stage].value
    reused = " (as it was)" if made.reused else ""
    if made.stage == "caption":
        line.say(f"caption{reused}: {value.text}")
        for check in failed(caption_checks(value.text, task)):
            line.say(f"  {check.note}")
    elif made.stage == "keywords":
        line.say(f"keywords{reused}: {', '.join(item.text for item in value.items)}")
    elif made.stage == "alternatives":
        shown = [f"{item.keyword} -> {' / '.join(o.text for o in item.options if o.used)}" for item in value.items]
        line.say(f"alternatives{reused}: {'; '.join(shown)}")
    else:
        line.say(
            f"counterfactual captions{reused}: {sum(item.used for item in value.items)} of {len(value.items)} used"
        )
        for item in value.items:
            for check in () if item.used else failed(counterfactual_checks(values["caption"].value.text, item, task)):
                line.say(f"  not used: {item.text} {check.note}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipeline", description="DILLEMA Studio without a browser.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    one = commands.add_parser("augment", help="make test cases of one image", description=augment.__doc__)
    one.add_argument("image", help="the source image")
    one.add_argument(
        "--task", required=True, choices=("classification", "segmentation"), help="of the model under test"
    )
    one.add_argument("--label", default="", help="the class of the image, for classification")
    one.add_argument(
        "--protected", default="", help="a,b: classes that must stay, for segmentation (default: profile's)"
    )
    one.add_argument("--mask", metavar="FILE", help="the mask of the image: a PNG of class numbers, for segmentation")
    one.add_argument("--classes", default="", metavar="TEXT", help='of the mask, such as "0 sky, 1 road"')
    one.add_argument("--out", required=True, help="folder for the images and run.json")
    one.add_argument("--profile", default="demo", help="which models, prompts and settings (default: demo)")
    one.add_argument("--seed", type=_seed, default=0, help="another seed gives other images (default: 0)")
    one.add_argument("--captions", metavar="N", help="counterfactual captions at most")
    one.add_argument("--edits-at-once", metavar="N", help="edits in one caption; 0 for all")
    one.add_argument("--images-per-caption", metavar="N", help="images made from each caption")
    one.add_argument("--steps", metavar="N", help="denoising steps")
    one.add_argument("--set", metavar="STAGE.NAME=VALUE", action="append", default=[], help="any other setting")
    one.set_defaults(command=augment)

    repeat = commands.add_parser("again", help="make the images of a run again", description=again.__doc__)
    repeat.add_argument("run", help="a run.json that augment wrote")
    repeat.add_argument("--out", required=True, help="folder for the images")
    repeat.add_argument("--image", help="only this one, such as image-002.png")
    repeat.set_defaults(command=again)

    listed = commands.add_parser("profiles", help="list the profiles", description=profiles.__doc__)
    listed.set_defaults(command=profiles)

    every = commands.add_parser("settings", help="list the settings of a profile", description=settings_list.__doc__)
    every.add_argument("--profile", default="demo")
    every.set_defaults(command=settings_list)
    return parser


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) > LARGEST:
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0 to {LARGEST}, not {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
