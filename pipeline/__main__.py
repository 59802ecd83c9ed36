"""The command line: `python -m pipeline augment IMAGE ...` does the whole job, `again` repeats it, `recipes` and
`profiles` list what there is.

Results go to stdout, a path a line; progress and remarks to stderr. A person's mistake ends with one sentence and exit
code 2, a Ctrl-C with 130; whatever ends `augment`, what is finished is kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from pipeline import run_file
from pipeline.driver import Driver, Event, ImageDone, Request, StageBegan, StageDone
from pipeline.errors import Cancelled, UserError
from pipeline.folder import FolderStore, RepeatStore, make_folder
from pipeline.images import read_image
from pipeline.lineage import Lineage
from pipeline.masks import NamedMask
from pipeline.methods import method_of
from pipeline.models import load_models
from pipeline.options import asked_mask, asked_settings, asked_task, changed_settings
from pipeline.profile import Profile, load_profile, profile_names
from pipeline.progress import Progress
from pipeline.recipes import DEFAULT, known_recipes, recipe_of
from pipeline.seeds import LARGEST
from pipeline.stages.base import Stage
from pipeline.stages.generation import PlannedImage
from pipeline.terminal import ProgressLine, stop_on_interrupt


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
    """All stages of a recipe for one image."""
    profile, recipe = load_profile(options.profile), recipe_of(options.recipe)
    models = load_models(profile)
    driver = Driver(profile, models)
    settings = changed_settings(recipe.settings_in(profile), asked_settings(options))
    task = asked_task(options, profile)
    picture = read_image(options.image)
    mask = asked_mask(options, picture.image.size)
    models.check()
    named = NamedMask(mask.image, mask.classes) if mask else None
    asked = run_file.asked_run(
        recipe,
        task,
        profile,
        options.seed,
        settings,
        driver.prompts(recipe),
        Path(options.image).name,
        picture.image,
        picture.notes,
        named,
    )
    store = FolderStore(Path(options.out), asked, picture.image, mask.image if mask else None)
    line, drawn = ProgressLine(), list[Lineage]()
    for note in (*picture.notes, *(mask.notes if mask else ())):
        line.say(note)

    def tell(event: Event) -> None:
        match event:
            case StageBegan():
                line(Progress(event.stage, 0, 1, note=f"stage {event.number} of {event.total}"))
            case Progress():
                line(event)
            case StageDone():
                values = {name: held.value for name, held in store.values().items()}
                line.say(_line(recipe.stage(event.stage), event))
                for remark in recipe.stage(event.stage).remarks(event.value.value, values, task):
                    line.say(f"  {remark}")
            case ImageDone():
                drawn.append(event.lineage)
                line.clear()
                print(store.file_of(event.lineage), flush=True)

    try:
        with stop_on_interrupt() as cancelled:
            driver.run(Request(task, settings, recipe.name, options.seed), store, tell, cancelled)
    except BaseException:
        line.clear()
        line.say(f"Stopped. Images kept: {store.images}, see {store.file}. The same command goes on from here.")
        raise
    line.clear()
    store.finish(drawn)
    print(store.file, flush=True)
    return 0


def again(options: argparse.Namespace) -> int:
    """Every image of a `run.json` made again; 0 when all have the same pixels, 1 when one has not."""
    path = Path(options.run)
    held = run_file.read(path)
    wanted = [image for image in held.images if options.image in (None, image.file)]
    if not wanted:
        raise UserError(f"There is no image {options.image or ''} in {path}: nothing to make again.")
    try:
        profile = Profile.model_validate(held.profile)
    except ValidationError as error:
        raise UserError(f"The profile in {path} is damaged or was changed by hand: it cannot be used.") from error
    source = run_file.load_png(path.parent / run_file.SOURCE, held.source_sha256)
    folder = make_folder(Path(options.out))
    if folder.resolve() == path.parent.resolve():
        raise UserError("The images would replace those they are compared with: choose another --out.")
    models = load_models(profile)
    models.check()
    line, differ = ProgressLine(), 0

    def compared(file: Path, same: bool) -> None:
        nonlocal differ
        differ += not same
        line.clear()
        print(f"{file}  {'same pixels' if same else 'DIFFERENT pixels'}", flush=True)

    def tell(event: Event) -> None:
        if isinstance(event, Progress):
            line(event)

    mask = run_file.load_mask(held, path.parent)
    store = RepeatStore(held, wanted, source, mask, folder, compared)
    images = tuple(PlannedImage(image.record.lineage.counterfactual, image.record.lineage.seed) for image in wanted)
    request = Request(held.run.task, held.settings, held.run.recipe, held.seed, stages=(), images=images)
    with stop_on_interrupt() as cancelled:
        Driver(profile, models, held.prompts).run(request, store, tell, cancelled)
    if differ:
        now = run_file.versions()
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


def recipes(_options: argparse.Namespace) -> int:
    """The recipes: their stages, and what they make."""
    for recipe in known_recipes():
        print(f"{recipe.name:<16} {recipe.description}")
        print(f"{'':<16} {' -> '.join((*recipe.names, method_of(recipe.method).title))}")
    return 0


def profiles(_options: argparse.Namespace) -> int:
    """The profiles with their titles."""
    for name in profile_names():
        print(f"{name:<10} {load_profile(name).title}")
    return 0


def settings_list(options: argparse.Namespace) -> int:
    """Every setting of a recipe: its value in a profile, and what it does."""
    held = recipe_of(options.recipe).settings_in(load_profile(options.profile))
    for stage in type(held).model_fields:
        for name, field in type(getattr(held, stage)).model_fields.items():
            print(f"{stage + '.' + name:<36} {getattr(getattr(held, stage), name)!s:<8} {field.description}")
    return 0


def _line(stage: Stage, event: StageDone) -> str:
    return f"{stage.noun}{' (as it was)' if event.reused else ''}: {stage.summary(event.value.value)}"


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
    one.add_argument("--recipe", default=DEFAULT, help=f"what is made, see `recipes` (default: {DEFAULT})")
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

    named = commands.add_parser("recipes", help="list the recipes", description=recipes.__doc__)
    named.set_defaults(command=recipes)

    every = commands.add_parser("settings", help="list the settings of a profile", description=settings_list.__doc__)
    every.add_argument("--profile", default="demo")
    every.add_argument("--recipe", default=DEFAULT)
    every.set_defaults(command=settings_list)
    return parser


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) > LARGEST:
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0 to {LARGEST}, not {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
