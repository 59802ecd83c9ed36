"""Commands on models: `models` lists them, `fetch` downloads their weights, `check` tries each.

Of the modules for `python -m pipeline`, only this one knows the models under test.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from cli.common import SOME_FAILED, ProgressLine, stop_on_signals
from core.errors import Cancelled, CannotLoad, UserError, one_line
from core.images import editing_size
from core.model_sections import WebFile, Weights, in_bytes
from core.progress import Pace, Progress, stop_if
from core.settings import CaptionSettings, ConditioningSettings, EditingSettings, LanguageSettings
from core.types import Task
from evaluation.adapters.architectures import weights_of
from pipeline.models import Models, hub, load_models
from pipeline.models.inventory import ListedProfile, in_table, listed, sections
from pipeline.models.machine import memory_in_use, this_machine
from pipeline.profiles.image_sections import EDITOR, PREVIEW_VAE
from pipeline.profiles.profile import Profile, load_profile, profile_names
from pipeline.seams import DrawRequest, LanguageRequest

_ALONE = ("captioner", "language model", "sentence model", EDITOR, "embedder")
"""Models that are released right after their check. Other models, such as parts of the generator, stay loaded."""


def models(options: argparse.Namespace) -> int:
    """List the models of the profiles: origin, files on this machine, download size, memory, and whether this machine
    has enough memory. Uses no network.
    """
    machine, profiles_listed = this_machine(), list[ListedProfile]()
    for name in options.profiles or profile_names():
        profile = load_profile(name)
        profiles_listed.append(listed(profile, machine, name, _under_test(profile)))
    if options.json:
        plain = {"machine": vars(machine), "profiles": [one.plain() for one in profiles_listed]}
        print(json.dumps(plain, ensure_ascii=False, indent=2))
        return 0
    print(machine.in_words())
    for one in profiles_listed:
        print()
        print(in_table(one, origins=bool(options.profiles)))
    return 0


def fetch(options: argparse.Namespace) -> int:
    """Download the weights of a profile from the hub. Show the size and ask first. Resume an earlier download, and
    verify the files by the hub's hashes. The exit code is 0 if all weights are here, and 3 if some failed.
    """
    profile, line = load_profile(options.profile), ProgressLine()
    listings, failed = list[tuple[str, hub.Listing]](), 0
    for role, weights in {**profile.weights(), **_under_test(profile)}.items():
        try:
            if isinstance(weights, UserError):
                raise CannotLoad(f"The {role}: {weights}") from weights
            if weights.hub or isinstance(weights, WebFile):
                listing = hub.listing(role, weights)
                listings.append((role, hub.damaged(role, listing) if options.verify else listing))
        except CannotLoad as error:
            if _no_network(error):
                raise  # without a network, all other models would fail too
            line.say(str(error))
            failed += 1
    # Two roles may share a file, which counts only once.
    left = {place: size for _, listing in listings for place, size in listing.left.items()}
    needed = sum(left.values())
    for role, listing in listings:
        state = f"{in_bytes(listing.bytes_missing)} to fetch" if listing.missing else "here"
        licence = listing.weights.licence or "see its page"
        print(
            f"{role:<28} {listing.weights.title}  {in_bytes(listing.bytes)}, {state}  (licence: {licence})", flush=True
        )
    if any(listing.missing for _, listing in listings):
        _require_room(listings, left)
        _require_yes(needed, options.yes)
        failed += _fetch_all(listings, needed, line)
    for role, listing in listings:
        weights = listing.weights
        if weights.hub and not weights.pinned and hub.held(weights).complete is not False:
            pin = f'revision = "{listing.commit}"'
            print(f"{role:<28} is not pinned: {pin} in your profile keeps the one that is here.")
    if not failed:
        print(f"All weights of {profile.name} are here.")
    return SOME_FAILED if failed else 0


def _no_network(error: CannotLoad) -> bool:
    from huggingface_hub.errors import HfHubHTTPError

    return not isinstance(error.__cause__, HfHubHTTPError | UserError | None)


def _under_test(profile: Profile) -> dict[str, Weights | UserError]:
    by_role = dict[str, Weights | UserError]()
    for role, settings in profile.under_test().items():
        try:
            by_role[role] = weights_of(settings)
        except UserError as error:
            by_role[role] = error
    return by_role


def _require_room(found: list[tuple[str, hub.Listing]], left: Mapping[Path, int]) -> None:
    """Raise UserError if the disk of the hub's cache, or of torch's cache, has too little space."""
    files = [Path(one.weights.path) for _, one in found if isinstance(one.weights, WebFile) and one.missing]
    apart = {place: left[place] for place in files if hub.disk_of(place) != hub.disk_of(hub.cache_folder())}
    hub.require_room(sum(left.values()) - sum(apart.values()))
    if apart:
        hub.require_room(sum(apart.values()), folder=files[0].parent, variable="TORCH_HOME")


def _require_yes(needed: int, agreed: bool) -> None:
    if agreed:
        return
    if not sys.stdin.isatty():
        raise UserError(f"{in_bytes(needed)} would be downloaded, and no terminal can ask you: confirm with --yes.")
    print(f"Fetch {in_bytes(needed)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("Nothing was fetched.")


def _fetch_all(found: list[tuple[str, hub.Listing]], needed: int, line: ProgressLine) -> int:
    """Download all weights. Return the number of models whose download failed."""
    pace, came, failed = Pace(needed), 0, 0
    with stop_on_signals() as stop:
        for role, listing in found:

            def told(count: int, role: str = role) -> None:
                nonlocal came
                came += count
                # The note changes in steps of 5 %, since each new note is a line if there is no terminal.
                share = min(100, came * 100 // max(1, needed)) // 5 * 5
                note = f"{share} % of {in_bytes(needed)}"
                left = pace.seconds_left(came) if came * 100 >= needed else None  # too early to estimate
                line(Progress(role, min(came, needed), needed, left, note))

            try:
                if listing.missing:
                    hub.download(role, listing, told, stop.asked)
            except CannotLoad as error:
                line.say(str(error))
                failed += 1
            except (Cancelled, KeyboardInterrupt):
                line.say("Stopped. Fetched parts are kept: run the same command to resume.")
                raise
    line.clear()
    return failed


@dataclass(frozen=True)
class Tried:
    """Result of trying one model."""

    role: str
    name: str
    seconds_to_load: float = 0.0
    seconds_of_a_step: float = 0.0
    memory: int = 0
    """Main memory that the model added, in bytes."""
    gpu_memory: int = 0
    """Maximum GPU memory in use, in bytes; 0 without a GPU."""
    problem: str = ""

    def in_words(self) -> str:
        """Return the result in one line."""
        if self.problem:
            return f"{self.role:<28} {self.name}: {self.problem}"
        gpu = f", GPU {in_bytes(self.gpu_memory)}" if self.gpu_memory else ""
        # A part of another model, such as a ControlNet of a generator, was counted with that model.
        memory = f"memory {in_bytes(self.memory)}" if self.memory > 0 else "no more memory"
        return (
            f"{self.role:<28} works: loaded in {self.seconds_to_load:.1f} s, one step {self.seconds_of_a_step:.1f} s, "
            f"{memory}{gpu}  {self.name}"
        )


def check(options: argparse.Namespace) -> int:
    """Load each model of a profile and do one step with it: a few words, one denoising step, one drawing. Download
    nothing. Print the time and memory of each model. After a failure the other models are tried too. The exit code is 0
    if all models work, and 3 if one fails.
    """
    profile = load_profile(options.profile)
    failed, loaded_models = 0, load_models(profile)
    with stop_on_signals() as stop:
        for role, section in {**sections(profile), **_under_test(profile)}.items():
            stop_if(stop.asked)
            tried = _tried(loaded_models, profile, role, section, options.profile)
            failed += bool(tried.problem)
            print(json.dumps(vars(tried), ensure_ascii=False) if options.json else tried.in_words(), flush=True)
            if role in _ALONE:
                loaded_models.release_all()
    return SOME_FAILED if failed else 0


def _tried(models: Models, profile: Profile, role: str, weights: Any, called: str) -> Tried:
    if isinstance(weights, UserError):
        return Tried(role, profile.under_test()[role].title, problem=str(weights))
    if isinstance(weights, Weights) and hub.held(weights).complete is False:
        fetched = weights.hub or isinstance(weights, WebFile)
        size = f" ({weights.size_in_words})" if fetched else ""
        advice = f"`python -m pipeline fetch {called}` brings it" if fetched else "correct the profile"
        return Tried(role, weights.title, problem=f"it is not here{size}: {advice}.")
    before = memory_in_use(reset=True)
    started = time.monotonic()
    try:
        step = _step_of(models, profile, role)
        loaded = time.monotonic()
        step()
    except Exception as error:  # noqa: BLE001 - any error of one model: the others are tried
        return Tried(role, weights.title, problem=one_line(error))
    ended, after = time.monotonic(), memory_in_use()
    return Tried(role, weights.title, loaded - started, ended - loaded, after[0] - before[0], after[1])


def _step_of(models: Models, profile: Profile, role: str) -> Callable[[], Any]:
    """Load the model of a role. Return a function that does one step with the model."""
    picture = Image.radial_gradient("L").resize((512, 512)).convert("RGB")
    task = Task("classification", label=(profile.tasks.labels or ("bird",))[0])
    if role == "captioner":
        captioner = models.captioner
        return lambda: captioner.caption(picture, task, CaptionSettings(max_new_tokens=8), 0)
    if role == "language model":
        language = models.language
        return lambda: language.complete(LanguageRequest("Name a colour.", 0), LanguageSettings(max_new_tokens=8))
    if role == "judge":
        judge = models.judge
        request = LanguageRequest("Name a colour.", 0, pictures=(picture,))
        return lambda: judge.complete(request, LanguageSettings(max_new_tokens=8))
    if role == "sentence model":
        sentences = models.sentences
        return lambda: sentences.vectors(["a bird on a twig", "a boat"])
    if role == "embedder":
        embedder = models.embedder
        return lambda: (embedder.image(picture), embedder.text("a bird on a twig"))
    if role == EDITOR:
        editor, once = models.editor, EditingSettings(steps=1)
        source = picture.resize(editing_size(picture.size, once.short_side))
        return lambda: editor.draw([DrawRequest("Make it snow.", 0, 0)], 1, [source], once, _nothing)
    if role in profile.under_test():
        from evaluation.models import ModelUnderTest

        network = ModelUnderTest(profile.under_test()[role])
        return lambda: network.predict(picture)
    if role.startswith("detector of "):
        kind = next(one for one in profile.generator.controlnets if role == f"detector of {one}")
        detector = models.detector(kind)
        return lambda: detector.draw(picture, ConditioningSettings(kind=kind))
    if role == PREVIEW_VAE:
        drawing: Any = models.generator
        return drawing.preview_vae  # type: ignore[no-any-return]
    kinds = profile.generator.controlnets
    kind = next((one for one in kinds if role == f"ControlNet for {one}"), next(iter(kinds)))
    generator = models.generator.on(kind)
    settings = profile.settings.generation.model_copy(update={"steps": 1})
    side = settings.short_side
    control = picture.resize((side, side))
    return lambda: generator.draw([DrawRequest("a bird on a twig", 0, 0)], 1, [control], settings, _nothing)


def _nothing(_done: int, _total: int) -> None: ...
