"""The command line of `pipeline`. `python -m pipeline augment IMAGE ...` makes test cases. `again` redraws test cases
and compares the pixels. `recipes` lists recipes and `profiles` lists profiles. `models`, `fetch` and `check` manage the
models (`models.py`).

Results go to stdout, one path per line; progress and remarks go to stderr. A user's mistake ends with one sentence and
exit code 2. The exit code is 3 after failed images, 130 after Ctrl-C, 143 after SIGTERM, and 141 if the reader of the
output stops reading. In all cases, finished images of `augment` are kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from cli import models as model_commands
from cli import options as asked_for
from cli.common import DIFFERENT, SOME_FAILED, WRONG, ProgressLine, Stop, exit_code, stop_on_signals
from cli.parsers import parser_of, whole_number
from cli.reports import JsonLines, Report, Words
from core.errors import Cancelled, CannotLoad, UnreadableReply, UserError, one_line
from core.images import read_image
from core.lineage import DEFAULT_RECIPE, Lineage
from core.masks import NamedMask
from core.progress import Progress, stop_if
from core.seeds import LARGEST
from pipeline.driver import Driver, SourceWork
from pipeline.lots import SIDE_BY_SIDE, run_stages
from pipeline.methods import method_of
from pipeline.models import load_models
from pipeline.models.machine import share_cores, without_gpu
from pipeline.profiles.profile import Profile, load_profile, notice_for, profile_names
from pipeline.recipes import known_recipes, recipe_of
from pipeline.request import Event, ImageDone, ImageFailed, Request
from pipeline.run_files import run_file
from pipeline.run_files.folder import FolderStore, RepeatStore, make_folder
from pipeline.stages.generation import PlannedImage

BATCH = "batch"
ACROSS = (
    "The models of the profile {profile} do not fit into memory together: each stage runs for up to {most} images "
    "before the next stage begins."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    return exit_code(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    of_models = (model_commands.models, model_commands.fetch, model_commands.check)
    seed = whole_number(0, LARGEST, f"a seed is a whole number from 0 to {LARGEST}, not {{text}}")
    parser = parser_of(
        __file__, augment, again, profiles, recipes, settings_list, *of_models, seed=seed, recipe=DEFAULT_RECIPE
    )
    command_line = sys.argv[1:] if arguments is None else list(arguments)
    if not command_line:
        parser.print_help(sys.stderr)
        return WRONG
    if command_line[0] == BATCH:
        from cli import batches  # slow to import, and not needed for a single image

        return batches.main(command_line[1:])
    options = parser.parse_args(arguments)
    share_cores()
    _quiet_libraries()
    try:
        return int(options.act(options))
    except UserError as error:
        _report(options).error(error)
        return SOME_FAILED if isinstance(error, UnreadableReply) else WRONG


def augment(options: argparse.Namespace) -> int:
    """Run all stages of a recipe for one image or several. If the memory holds all models, several images are done one
    after another. If not, each stage runs for all images before the next stage, so that each model is loaded once.
    Failed images are listed, and the others continue. The exit code is 0 without failures, else 3. The same command
    tries failed images again, with the next seed.
    """
    profile, recipe, report = load_profile(options.profile), recipe_of(options.recipe), _report(options)
    models = load_models(profile)
    settings = asked_for.changed_settings(recipe.settings_in(profile), asked_for.asked_settings(options, recipe))
    if refused := recipe.drawing_method.refused(profile, recipe.drawing_method.settings_of(settings)):
        raise UserError(refused)  # before the slow text stages begin
    task, sources = asked_for.asked_task(options, profile), asked_for.asked_sources(options)
    asked_for.require_mask_options(options)
    models.check()
    if expect := without_gpu(profile):
        report.note(expect)
    request = Request(task, settings, recipe.name, options.seed, watched=False)
    waiting, at_once = deque(sources), 1
    with stop_on_signals() as stop:
        work = _Augmenting(options, Driver(profile, models), request, sources, report, stop)
        while waiting:
            # One image at a time shows the first results early, but could load all models again for each image.
            if at_once == 1 < len(waiting) and not models.fit_together:
                at_once = SIDE_BY_SIDE
                report.note(ACROSS.format(profile=profile.name, most=at_once))
            work.do([waiting.popleft() for _ in range(min(at_once, len(waiting)))])
    report.ended(len(sources), work.failed, work.images_failed)
    return SOME_FAILED if work.failed or work.images_failed else 0


@dataclass
class _Augmenting:
    """The work of one `augment` command."""

    options: argparse.Namespace
    driver: Driver
    request: Request
    folders: Mapping[Path, Path]
    """Folder for the results, by source image."""
    report: Report
    stop: Stop
    begun: int = 0
    """Number of source images begun so far."""
    failed: int = 0
    """Number of source images that failed."""
    images_failed: int = 0
    """Number of generated images that failed."""

    def do(self, paths: Sequence[Path]) -> None:
        """Do all stages for source images. Each text stage does all sources before the next stage begins. Then the
        images of one source after another are drawn. A batch never mixes images of several sources, so that no pixel
        depends on other sources. Raises errors that end all work, and the error of a source if it is the only source.
        """
        stores = dict[Path, FolderStore]()
        try:
            for path in paths:
                stop_if(self.stop.asked)
                with self._failing_alone(path):
                    stores[path] = self._opened(path)
            opened = list(stores)
            works = [SourceWork(self.request, store) for store in stores.values()]

            def tell(place: int, event: Event) -> None:
                self._tell(opened[place], stores[opened[place]], event)

            for path, error in zip(opened, run_stages(self.driver, works, tell, self.stop.asked), strict=True):
                with self._failing_alone(path):
                    self._finish(path, stores.pop(path), error)
        except BaseException:
            for path, store in stores.items():
                self.report.stopped(path, store)
            raise

    @contextmanager
    def _failing_alone(self, path: Path) -> Iterator[None]:
        """Report an error in the `with` block that concerns only this source image. Raise all others."""
        try:
            yield
        except (CannotLoad, Cancelled, BrokenPipeError):
            raise
        except Exception as error:
            if not asked_for.several(self.options):
                raise
            self.report.source_failed(path, error)
            self.failed += 1

    def _tell(self, path: Path, store: FolderStore, event: Event) -> None:
        self.report.event(path, event, recipe_of(self.request.recipe), self.request.task, store)

    def _opened(self, path: Path) -> FolderStore:
        """Read a source image, and open the folder for its results."""
        profile, request, folder = self.driver.profile, self.request, self.folders[path]
        self.begun += 1
        self.report.begun(path, self.begun, len(self.folders), folder)
        recipe, picture = recipe_of(request.recipe), read_image(path)
        image, prompts = picture.image, self.driver.prompts(recipe)
        mask = asked_for.asked_mask(self.options, path, image.size)
        named = NamedMask(mask.image, mask.classes) if mask else None
        of_request = (recipe, request.task, profile, request.seed, request.settings)
        run_request = run_file.asked_run(*of_request, prompts, path.name, image, picture.notes, named)
        store = FolderStore(folder, run_request, image, mask.image if mask else None, self.stop.saving)
        notice = notice_for(profile, image)
        for note in (*([notice] if notice else ()), *picture.notes, *(mask.notes if mask else ())):
            self.report.note(note, path)
        return store

    def _finish(self, path: Path, store: FolderStore, error: Exception | None) -> None:
        """Draw the images of a source image. If its text stages failed, raise their `error` instead."""
        drawn, failed = list[Lineage](), 0

        def tell(event: Event) -> None:
            nonlocal failed
            if isinstance(event, ImageDone):
                drawn.append(event.lineage)
            failed += isinstance(event, ImageFailed)
            self._tell(path, store, event)

        try:
            if error is not None:
                raise error
            self.driver.run(replace(self.request, stages=()), store, tell, self.stop.asked)
        except BaseException:
            self.report.stopped(path, store)
            raise
        store.finish(drawn, complete=not failed)
        self.report.done(path, store, failed)
        self.images_failed += failed


def again(options: argparse.Namespace) -> int:
    """Make every image of a `run.json` again and compare the pixels. The exit code is 0 if all images are equal, 1 if
    some differ, and 3 if one failed.
    """
    path = Path(options.run)
    if path.is_dir():
        path = path / run_file.FILE
    saved = run_file.read(path)
    chosen = [image for image in saved.images if options.image in (None, image.file)]
    if not saved.images:
        raise UserError(f"There is no image in {path} to make again.")
    if not chosen:
        names = saved.images[0].file if len(saved.images) == 1 else f"{saved.images[0].file} to {saved.images[-1].file}"
        raise UserError(f"There is no image {options.image} in {path}: it has {names}.")
    try:
        profile = Profile.model_validate(saved.profile)
    except ValidationError as error:
        raise UserError(f"The profile in {path} is damaged or was changed by hand: it cannot be used.") from error
    source = run_file.load_png(path.parent / run_file.SOURCE, saved.source_sha256)
    folder = make_folder(Path(options.out))
    if folder.resolve() == path.parent.resolve():
        raise UserError("The new images would replace the old ones: choose another --out.")
    models = load_models(profile)
    models.check()
    line, differ, failed, compiled = ProgressLine(), 0, 0, set[bool]()
    if expect := without_gpu(profile):
        line.say(expect)

    def compared(file: Path, same: bool) -> None:
        nonlocal differ
        differ += not same
        line.clear()
        print(f"{file}  {'same pixels' if same else 'DIFFERENT pixels'}", flush=True)

    def tell(event: Event) -> None:
        nonlocal failed
        if isinstance(event, Progress):
            line(event)
        elif isinstance(event, ImageDone):
            compiled.add(_compiled(event.lineage))
        elif isinstance(event, ImageFailed):
            failed += 1
            file = next(one.file for one in chosen if one.record.lineage.seed == event.image.seed)
            line.say(f"No {file}: {one_line(event.error)}")

    store = RepeatStore(saved, chosen, source, run_file.load_mask(saved, path.parent), folder, compared)
    lineages = (image.record.lineage for image in chosen)
    images = tuple(PlannedImage(one.counterfactual, one.seed, batch=one.settings.drawn_in) for one in lineages)
    task, recipe = saved.run.task, saved.run.recipe
    request = Request(task, saved.settings, recipe, saved.seed, stages=(), images=images, watched=False)
    with stop_on_signals() as stop:
        Driver(profile, models, saved.prompts).run(request, store, tell, stop.asked)
    if differ:
        now = run_file.versions()
        changed = [f"{name} {was}, now {now.get(name)}" for name, was in saved.versions.items() if now.get(name) != was]
        reason = (
            f"Other versions: {'; '.join(changed)}."
            if changed
            else "All versions are the same; the weights may not be."
        )
        if compiled != {_compiled(image.record.lineage) for image in chosen}:
            before, after = ("without", "with") if True in compiled else ("with", "without")
            reason = f"They were drawn {before} compiled blocks, and now {after}: this changes the last bits. {reason}"
        line.say(f"{differ} of {len(chosen)} images differ. {reason}")
    return DIFFERENT if differ else SOME_FAILED if failed else 0


def _compiled(lineage: Lineage) -> bool:
    batch = lineage.settings.drawn_in
    return batch is not None and batch.compiled


def recipes(_options: argparse.Namespace) -> int:
    """List each recipe with its description and stages. If only some profiles can run a recipe, list these profiles."""
    shipped = [load_profile(name) for name in profile_names()]
    for recipe in known_recipes():
        print(f"{recipe.name:<16} {recipe.description}")
        print(f"{'':<16} {' -> '.join((*recipe.names, method_of(recipe.method).title))}")
        able = [profile.name for profile in shipped if not recipe.cannot_draw(profile)]
        if len(able) < len(shipped):
            print(f"{'':<16} with the profile {' or '.join(able)}")
    return 0


def profiles(_options: argparse.Namespace) -> int:
    """List the profiles with their titles."""
    for name in profile_names():
        print(f"{name:<10} {load_profile(name).title}")
    return 0


def settings_list(options: argparse.Namespace) -> int:
    """List every setting that a recipe uses, with its value in a profile and a description."""
    recipe = recipe_of(options.recipe)
    settings = recipe.settings_in(load_profile(options.profile))
    for stage in type(settings).model_fields:
        for name, field in type(getattr(settings, stage)).model_fields.items():
            if recipe.reads(f"{stage}.{name}"):
                print(f"{stage + '.' + name:<36} {getattr(getattr(settings, stage), name)!s:<8} {field.description}")
    return 0


def _report(options: argparse.Namespace) -> Report:
    return JsonLines() if getattr(options, "json", False) else Words()


def _quiet_libraries() -> None:
    """Silence remarks of libraries, unless the user turns them on with `python -W` or the libraries' own variables."""
    for name in ("TRANSFORMERS_VERBOSITY", "DIFFUSERS_VERBOSITY"):
        os.environ.setdefault(name, "error")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
