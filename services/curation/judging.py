"""Lets a vision model judge generated images in the background, and stores its answers as checks of the images.

The worker thread of the jobs asks the judge while no job waits, a few images at a time. The answers are stored at once,
so a stop or a restart loses at most the images of one batch.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from core.errors import Cancelled, UserError
from core.image_filter import ImageFilter
from core.judgements import Judgement, JudgeReply, ToJudge
from core.progress import stoppable
from core.types import to_plain
from pipeline.checks.judge import Case, judge_all, questions_key
from pipeline.profiles.profile import Profile, lacking
from pipeline.profiles.text_sections import ServerJudge
from pipeline.seams import Models
from services.changes import Changes
from services.commands import does
from services.curation.views import WHICH, Filter
from services.edit_conflicts import Id
from services.jobs import JobQueue
from storage.workspace import Workspace

log = logging.getLogger(__name__)

DOING = "judging images"
EVERYTHING = ImageFilter()
FACTORS_EACH = 4
"""Maximum number of questions that the judge is asked about an image, one per request."""


class Judging:
    """The judge of one workspace, with its queue of images. All methods may be called from any thread."""

    def __init__(
        self, profile: Profile, models: Models, workspace: Workspace, jobs: JobQueue, changes: Changes | None = None
    ) -> None:
        self._profile, self._models, self._workspace, self._jobs = profile, models, workspace, jobs
        self._changes = changes or Changes()
        self._lock = threading.Lock()
        self._waiting = deque[int]()
        self._stop = threading.Event()
        self._lined_up = False
        self._judged = self._failed = 0
        self._problem = self._last_failure = ""

    @does("judge-images")
    def judge(
        self,
        filter: Annotated[Filter, Field(description=WHICH)] = EVERYTHING,
        again: Annotated[bool, Field(description="True to also judge images that were judged here before")] = False,
    ) -> dict[str, Any]:
        """Have the profile's judge, a model that sees pictures, answer four questions about each generated image of a
        filter: is the label still right, does the edit show, is something else lost or added, is the picture broken.
        Each answer becomes a check. Images that were judged before are left out. This runs in the background;
        show_judging tells how far it is and what an image costs. Raises UserError if the profile has no judge.
        """
        if self._profile.judge is None:
            raise UserError(lacking(self._profile, "judge"))
        entries = self._workspace.judgements.entries(filter, again)
        with self._lock:
            known = set(self._waiting)
            self._waiting.extend(entry for entry in entries if entry not in known)
            if not self._lined_up:
                self._judged = self._failed = 0
                self._problem = self._last_failure = ""
            if self._stop.is_set():  # a batch that a person stopped may still be ending, by its own signal
                self._stop = threading.Event()
            begin = bool(self._waiting) and not self._lined_up and not self._jobs.closing
            self._lined_up |= begin
        if begin:
            self._jobs.when_idle(DOING, self._next)
        self._changes.tell()
        return self.show(filter)

    @does("show-judging", looks=True)
    def show(self, filter: Annotated[Filter, Field(description=WHICH)] = EVERYTHING) -> dict[str, Any]:
        """Show the profile's judge, the number of images of a filter that it has not judged, the progress, and the mean
        cost of an image so far (seconds, and tokens if the server reports them).
        """
        title = self._profile.judge_title
        cost = self._workspace.judgements.cost(title)
        unjudged = self._workspace.judgements.count_open(filter)
        with self._lock:
            waiting = len(self._waiting)
            return {
                "judge": title,
                "missing": lacking(self._profile, "judge") if self._profile.judge is None else "",
                "unjudged": unjudged,
                "seconds_each": cost.seconds,
                "tokens_each": cost.tokens,
                "judged_before": cost.images,
                "working": self._lined_up and not self._stop.is_set(),
                "waiting": waiting,
                "judged": self._judged,
                "failed": self._failed,
                "problem": self._problem or self._last_failure,
            }

    @does("stop-judging")
    def stop(self) -> dict[str, Any]:
        """Stop judging images; finished answers stay."""
        with self._lock:
            self._waiting.clear()
            self._stop.set()
        self._changes.tell()
        return self.show()

    @does("show-judgement", looks=True)
    def replies(self, entry: Annotated[Id, Field(ge=1, description="The entry of the catalogue")]) -> dict[str, Any]:
        """Show what the judge was asked about an image, and the judge's whole replies."""
        replies: dict[str, JudgeReply] = self._workspace.judgements.replies(entry)
        return {"replies": [{"check": name, **to_plain(one)} for name, one in replies.items()]}

    def close(self) -> None:
        """Stop judging images, since the studio closes."""
        self._stop.set()

    def _next(self) -> None:
        try:
            with stoppable(self._stop):
                self._judge_some()
        except Cancelled:
            log.info("Judging was stopped.")
        except UserError as error:
            self._give_up(str(error))
        except Exception as error:  # a model may fail in any way: the page reports it
            log.exception("images cannot be judged")
            self._give_up(f"The judge failed ({type(error).__name__}); the terminal says more.")
        finally:
            with self._lock:
                self._lined_up = more = bool(self._waiting) and not self._jobs.closing and not self._stop.is_set()
            self._changes.tell()
        if more:
            self._jobs.when_idle(DOING, self._next)

    def _give_up(self, problem: str) -> None:
        with self._lock:
            self._waiting.clear()
            self._problem = problem

    def _judge_some(self) -> None:
        """Judge the next images in the queue. Raises UserError if one fails and none has been judged so far."""
        section = self._profile.judge
        assert section is not None
        at_once = max(1, section.parallel // FACTORS_EACH) if isinstance(section, ServerJudge) else 1
        with self._lock:
            entries = list(islice(self._waiting, at_once))
        if not entries:
            return
        judge = self._models.judge
        cases, numbers = list[Case](), list[int]()
        for one in self._workspace.judgements.to_judge(entries):
            try:
                cases.append(self._case(one))
                numbers.append(one.entry)
            except (UserError, OSError, ValueError) as error:
                log.exception("the image of entry %s cannot be judged", one.entry)
                self._fail(str(error))
        results = judge_all(judge, cases, section.settings) if cases else []
        made = {entry: one for entry, one in zip(numbers, results, strict=True) if isinstance(one, Judgement)}
        self._workspace.judgements.save(self._profile.judge_title, questions_key(), made)
        errors = [one for one in results if isinstance(one, UserError)]
        for one_error in errors:
            self._fail(str(one_error))
        with self._lock:
            self._judged += len(made)
            for entry in entries:
                if entry in self._waiting:  # not if a person stopped in the meantime
                    self._waiting.remove(entry)
            none_so_far = not self._judged
        if errors and none_so_far:
            raise errors[0]

    def _fail(self, message: str) -> None:
        with self._lock:
            self._failed += 1
            self._last_failure = message

    def _case(self, one: ToJudge) -> Case:
        source, image = (self._workspace.images.load(sha).convert("RGB") for sha in (one.source, one.image))
        return Case(source, image, one.task, one.edits, one.seed % (1 << 31))
