"""Cached analyses of studies. A page of a study asks every few seconds, but an analysis may take longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from core.latest import Latest
from core.studies import Adjudication, StudyData
from core.study_report import StudyReport
from services.own_processes import end_with_parent, own_processes
from study.intervals import wilson
from study.methods import paragraph
from study.results import analyse

MANY_VOTES = 2_000
"""Number of votes above which a study is analysed in another process, to keep the server fast."""
KEPT = 8
"""Number of studies whose analysis is in memory."""
QUICK_SECONDS = 0.1
"""Maximum seconds that a quick analysis takes. A quick analysis is repeated after every change."""
SHARE, LONGEST_SECONDS = 0.05, 20.0
"""Limits for a slow analysis. After the study has changed, the old analysis is still shown up to a certain age. This
age is the analysis's processor seconds divided by `SHARE`, and at most `LONGEST_SECONDS`."""
Stamp = tuple[object, object]
"""State and revision number of a study. A page may show an analysis of an old revision, but not of an old state."""


@dataclass(frozen=True)
class Analysis:
    """A study's data with the figures computed from it."""

    data: StudyData
    report: StudyReport
    stamp: Stamp
    """State and revision of the study from which the figures were computed."""
    at: float
    """Time at which the analysis ended, in seconds on the monotonic clock."""
    seconds: float
    """Processor seconds that the analysis took."""
    shown: dict[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    """Content by page, rendered once for all viewers."""

    @property
    def methods(self) -> str:
        """Return a paragraph that describes the study's methods, for a paper."""
        return paragraph(self.report)


class Analyses:
    """Cached analyses of studies. `load` returns a study's data. `stamp` quickly returns its state and revision."""

    def __init__(self, load: Callable[[str], StudyData], stamp: Callable[[str], Stamp]) -> None:
        self._load, self._stamp = load, stamp
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        """Protects the attributes below, and `_locks`, which has a lock for each study."""
        self._kept = Latest[Analysis](KEPT)
        self._changes = 0
        """Number of calls of `changed`. An analysis that began before the latest call is not cached."""

    def of(self, study_id: str) -> Analysis:
        """Return a study's analysis. If it takes long, it may be some seconds old. Concurrent requests share it."""
        with self._lock_of(study_id):
            with self._lock:
                cached, changes = self._kept.get(study_id), self._changes
            stamp = self._stamp(study_id)
            if cached is not None and (cached.stamp == stamp or self._still_good(cached, stamp)):
                return cached
            analysis = self._analysed(study_id, stamp)
            with self._lock:
                if self._changes == changes:
                    self._kept.put(study_id, analysis)
            return analysis

    def is_current(self, found: Analysis) -> bool:
        """Return True if the study is unchanged since the analysis `found`."""
        return found.stamp == self._stamp(found.data.study.id)

    def changed(self) -> None:
        """Discard the analyses of all studies. Called when a study lead has changed a study or a worker's record."""
        with self._lock:
            self._changes += 1
            self._kept = Latest(KEPT)

    def adjudicated(self, study_id: str, decision: Adjudication) -> None:
        """Apply an adjudication to the cached analysis, to avoid a full analysis after each decision."""
        with self._lock_of(study_id), self._lock:
            cached = self._kept.get(study_id)
            if cached is None or cached.seconds <= QUICK_SECONDS:
                return
            adjudication = decision if decision.answer else None
            cases = tuple(
                replace(case, adjudication=adjudication)
                if (case.item, case.question) == (decision.item, decision.question)
                else case
                for case in cached.report.disagreements
            )
            self._kept.put(study_id, replace(cached, report=replace(cached.report, disagreements=cases), shown={}))

    @staticmethod
    def _still_good(analysis: Analysis, stamp: Stamp) -> bool:
        age = time.monotonic() - analysis.at
        slow = analysis.seconds > QUICK_SECONDS
        return slow and analysis.stamp[0] == stamp[0] and age < min(analysis.seconds / SHARE, LONGEST_SECONDS)

    def _analysed(self, study_id: str, stamp: Stamp) -> Analysis:
        wilson(1, 2)  # the first call loads scipy, which must not count as time of the analysis
        # The stamp was taken before the data: a vote in between makes the analysis look older than it is, never newer.
        started = time.thread_time()
        data = self._load(study_id)
        seconds = time.thread_time() - started
        if len(data.votes) > MANY_VOTES:
            with ProcessPoolExecutor(1, own_processes(), end_with_parent) as pool:
                report, more = pool.submit(_timed, data).result()
        else:
            report, more = _timed(data)
        return Analysis(data, report, stamp, time.monotonic(), seconds + more)

    def _lock_of(self, study_id: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(study_id, threading.Lock())


def _timed(data: StudyData) -> tuple[StudyReport, float]:
    """Return the report on a study, and the processor seconds that it took."""
    started = time.thread_time()
    report = analyse(data)
    return report, time.thread_time() - started
