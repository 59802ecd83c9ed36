"""Output of the command line while it works: text for a person, or JSON with one event per line for a program.

As text, results go to stdout, one path per line, and all else goes to stderr. As JSON, everything goes to stdout.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cli.common import ProgressLine, printable
from core.errors import UnreadableReply, UserError, one_line
from core.lineage import Lineage
from core.progress import Progress
from core.types import Task, to_plain
from core.words import count_of
from pipeline.recipes import Recipe, edits_in_words
from pipeline.request import Event, ImageDone, ImageFailed, Placed, Remarked, StageBegan, StageDone
from pipeline.run_files.folder import FolderStore
from pipeline.stages.generation import PlannedImage


class Words:
    """Reports the work on source images to a person, as text."""

    def __init__(self) -> None:
        self._line = ProgressLine()
        self._noted: set[str] = set()
        self._headings: dict[Path, str] = {}
        self._under: Path | None = None
        """The source image of the latest heading."""

    def begun(self, source: Path, number: int, total: int, folder: Path) -> None:
        """Report the start of the work on a source image. Its results go to `folder`."""
        if total > 1:
            self._headings[source] = f"{source} ({number} of {total})"
        self._head(source)

    def _head(self, source: Path) -> None:
        """Print the heading of a source image, unless the latest line is about the same image."""
        if source in self._headings and source != self._under:
            self._under = source
            self._line.say(self._headings[source])

    def note(self, text: str, source: Path | None = None) -> None:
        """Report a note on a source image, or on the whole work. A note that was reported before is left out."""
        if text not in self._noted:  # a hundred photos would all repeat the same note
            self._noted.add(text)
            self._line.say(text)

    def event(self, source: Path, event: Event, recipe: Recipe, task: Task, store: FolderStore) -> None:
        """Report an event that the driver sent about the work on a source image."""
        if not isinstance(event, (StageBegan, Progress)):  # one progress line serves all sources of a stage
            self._head(source)
        match event:
            case StageBegan():
                self._line(Progress(event.stage, 0, 1, note=f"stage {event.number} of {event.total}"))
            case Progress():
                self._line(event)
            case StageDone():
                stage, again = recipe.stage(event.stage), " (as it was)" if event.reused else ""
                self._line.say(f"{stage.noun}{again}: {stage.summary(event.value.value)}")
                for remark in _remarks(event, recipe, task, store):
                    self._line.say(f"  {remark}")
            case Placed():
                self.note(f"generation on {event.words}")
            case Remarked():
                self._line.say(f"  {event.words}")
            case ImageDone():
                self._line.clear()
                print(store.file_of(event.lineage), flush=True)
            case ImageFailed():
                what = edits_in_words(recipe.name, event.image.counterfactual)
                self._line.say(f"No image of “{what}” (seed {event.image.seed}): {one_line(event.error)}")

    def stopped(self, source: Path, store: FolderStore) -> None:
        """Report that the work on the source image stopped early."""
        self._line.say(f"Stopped. Images kept: {store.images}, see {store.file}. The same command continues from here.")

    def done(self, source: Path, store: FolderStore, failed: int) -> None:
        """Report the end of the work on a source image, with the number of its failed images."""
        self._line.clear()
        print(store.file, flush=True)
        if failed:
            self._line.say(
                f"{failed} of {store.images + failed} images could not be made. The same command tries "
                f"{'it' if failed == 1 else 'them'} again, with the next seed."
            )

    def source_failed(self, source: Path, error: Exception) -> None:
        """Report that a source image failed. The work on the others continues."""
        self._line.say(f"{source}: {one_line(error)}")
        self._say_reply(error)

    def ended(self, sources: int, failed: int, images_failed: int) -> None:
        """Report the end of the command, with the numbers of failed source images and of failed generated images."""
        parts = [f"{failed} of {sources} source images"] if failed else []
        parts += [count_of(images_failed, "generated image")] if images_failed else []
        if sources > 1 and parts:
            self._line.say(f"Failed: {' and '.join(parts)}. The same command tries again what failed.")

    def error(self, error: UserError) -> None:
        """Report an error that ends the command."""
        self._line.say(str(error))
        self._say_reply(error)

    def _say_reply(self, error: Exception) -> None:
        if isinstance(error, UnreadableReply) and error.raw_reply:
            self._line.say("The reply was:")
            for line in error.raw_reply.splitlines():
                self._line.say(f"  {printable(line)}")


class JsonLines:
    """Reports the work on source images to a program, as lines of JSON. Each line is an object with `event`, and with
    `source` if it belongs to a source image. It has the same methods as `Words`.
    """

    def begun(self, source: Path, number: int, total: int, folder: Path) -> None:
        self._tell("begun", source, number=number, total=total, folder=str(folder))

    def note(self, text: str, source: Path | None = None) -> None:
        self._tell("note", source, message=text)

    def event(self, source: Path, event: Event, recipe: Recipe, task: Task, store: FolderStore) -> None:
        match event:
            case StageBegan():
                self._tell("stage-begun", source, stage=event.stage, number=event.number, total=event.total)
            case Progress():
                self._tell("progress", source, **vars(event))
            case StageDone():
                trace, value = event.value.trace, to_plain(event.value.value)
                notes = {"remarks": _remarks(event, recipe, task, store), "raw_reply": trace.raw_reply}
                self._tell("stage-done", source, stage=event.stage, reused=event.reused, value=value, **notes)
            case Placed():
                self._tell("placed", source, words=event.words)
            case Remarked():
                self.note(event.words, source)
            case ImageDone():
                lineage, file = event.lineage, str(store.file_of(event.lineage))
                drawn = {**_caption(lineage), "seconds": lineage.seconds}
                self._tell("image-done", source, file=file, reused=event.reused, **drawn)
            case ImageFailed():
                self._tell("image-failed", source, **_caption(event.image), message=one_line(event.error))

    def stopped(self, source: Path, store: FolderStore) -> None:
        self._tell("stopped", source, file=str(store.file), images=store.images)

    def done(self, source: Path, store: FolderStore, failed: int) -> None:
        self._tell("done", source, file=str(store.file), images=store.images, failed=failed, complete=not failed)

    def source_failed(self, source: Path, error: Exception) -> None:
        self._tell("source-failed", source, message=one_line(error), **_reply(error))

    def ended(self, sources: int, failed: int, images_failed: int) -> None:
        self._tell("ended", sources=sources, failed=failed, images_failed=images_failed)

    def error(self, error: UserError) -> None:
        self._tell("error", message=str(error), **_reply(error))
        sys.stderr.write(f"{error}\n")

    def _tell(self, event: str, about: Path | None = None, **what: Any) -> None:
        line = {"event": event, **({"source": str(about)} if about else {}), **what}
        print(json.dumps(line, ensure_ascii=False), flush=True)


Report = Words | JsonLines


def _remarks(event: StageDone, recipe: Recipe, task: Task, store: FolderStore) -> list[str]:
    values = {name: stored.value for name, stored in store.values().items()}
    return [*event.value.trace.notes, *recipe.stage(event.stage).remarks(event.value.value, values, task)]


def _reply(error: Exception) -> dict[str, Any]:
    """Return the prompt and the raw reply that an UnreadableReply holds, by name; {} for other errors."""
    if not isinstance(error, UnreadableReply):
        return {}
    return {"prompt": error.prompt, "raw_reply": error.raw_reply}


def _caption(image: Lineage | PlannedImage) -> dict[str, Any]:
    counterfactual = image.counterfactual
    edits = [{"keyword": edit.keyword, "alternative": edit.alternative} for edit in counterfactual.edits]
    return {"caption": counterfactual.text, "edits": edits, "seed": image.seed}
