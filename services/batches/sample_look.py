"""Checks a sample of a batch's source images: can they be read, and are the models made for such pictures?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.batches import Batch, BatchSource
from core.errors import UserError
from pipeline.profiles.profile import Profile, load_profile, notice_for
from services.batches.io_workers import data_set_of, read_item
from services.batches.plan_file import BatchPlan
from storage.workspace import Workspace

IN_DATA_SET, IN_WORKSPACE = 24, 100
"""Maximum number of source images to check: in a data set, and in the workspace, where that is quicker."""


@dataclass(frozen=True)
class SampleLook:
    """Result of checking some source images of a batch."""

    looked_at: int
    unknown: frozenset[str] = frozenset()
    """Keys of pictures that the profile's models were not made for."""
    problems: Mapping[str, int] = field(default_factory=dict)
    """Reasons why images cannot be used, each with the number of checked images. The most frequent reason is first."""


def look_at(workspace: Workspace, batch: Batch, plan: BatchPlan) -> SampleLook:
    """Check some source images of a batch. Raises UserError if its profile or data set is gone."""
    total, profile = workspace.batches.count_sources(batch.id), load_profile(batch.profile)
    some = _some_sources(workspace, batch.id, total, IN_WORKSPACE)
    if read := [source for source in some if source.run]:
        return _look_in_workspace(workspace, profile, read) if profile.notice else SampleLook(len(read))
    return _look_in_data_set(profile, plan, some[:: max(1, -(-len(some) // IN_DATA_SET))])


def _some_sources(workspace: Workspace, batch: int, total: int, most: int) -> Sequence[BatchSource]:
    """Return all sources of a batch, or `most` of them, evenly spaced."""
    if total <= most:
        return workspace.batches.sources(batch, limit=most)
    first = workspace.batches.sources(batch, limit=1)[0].id
    return [
        source
        for place in range(most)
        for source in workspace.batches.sources(batch, after=first - 1 + place * total // most, limit=1)
    ]


def _look_in_workspace(workspace: Workspace, profile: Profile, some: Sequence[BatchSource]) -> SampleLook:
    runs = workspace.batches.source_runs([source.run or "" for source in some])

    def unknown(source: BatchSource) -> bool:
        return bool(notice_for(profile, workspace.images.load(runs[source.run or ""].source_sha)))

    return SampleLook(len(some), frozenset(source.item.key for source in some if unknown(source)))


def _look_in_data_set(profile: Profile, plan: BatchPlan, some: Sequence[BatchSource]) -> SampleLook:
    data, unknown, problems = data_set_of(plan), set[str](), Counter[str]()
    for source in some:
        try:
            picture, _, _ = read_item(data, plan, source.item)
        except UserError as error:
            problems[str(error)] += 1
            continue
        if notice_for(profile, picture.image):
            unknown.add(source.item.key)
    return SampleLook(len(some), frozenset(unknown), dict(problems.most_common()))
