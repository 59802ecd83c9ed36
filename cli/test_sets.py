"""`python -m services.test_sets`: test sets without a browser.

Folders of this machine can be read only by this command line, never over HTTP. The server may run at the same time. A
user's mistake ends with one sentence and exit code 2. The exit code is 1 if a check finds a difference, damage or leak.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from cli.common import TEMPLATES, counting, in_workspace, printable
from cli.parsers import parser_of
from core.errors import UserError
from core.progress import Progress
from core.test_sets import SPLITS, SetEntry, SetVersion
from core.words import count_of
from formats.draft import MANIFEST, read_manifest
from formats.layouts import LAYOUTS
from pipeline.profiles.profile import load_profile
from services.commands import Commands
from services.test_sets.drafts import AddToTestSet, ReleaseTestSet, SplitTestSet, TestSetDrafts
from services.test_sets.examples import export_version
from services.test_sets.leaks import LeakRow, check_folder
from services.test_sets.versions import Versions, draft_of, version_of
from storage.workspace import Workspace

NO_SPLIT = "none"
"""Word that represents "no split" on the command line."""
FEWEST_DIGITS = 6
"""Minimum number of digits of an image's hash by which a command finds the image."""
_SHORT = 12
"""Number of digits of a hash that are printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    formats = [name for name, layout in LAYOUTS.items() if layout.write is not None]
    values = {"formats": formats, "format": formats[0], "splits": (*SPLITS[:-1], NO_SPLIT)}
    reading = (list_sets, show, diff, verify, export, leaks)
    changing = (create, draft, add, remove, relabel, set_split, split, release)
    options = parser_of(__file__, *reading, *changing, **values).parse_args(arguments)

    def act(workspace: Workspace) -> int:
        lines, code = options.act(workspace, options)
        print("\n".join(printable(line) for line in lines))
        return int(code)

    return in_workspace(Path(options.workspace), act)


Said = tuple[list[str], int]
"""Lines that a command prints, and its exit code."""


def list_sets(workspace: Workspace, options: argparse.Namespace) -> Said:
    sets = workspace.test_sets.all()
    return [_line(version) for test_set in sets for version in test_set.versions] or ["No test set yet."], 0


def show(workspace: Workspace, options: argparse.Namespace) -> Said:
    """Describe a version. With --images, also print one line for each of its images."""
    version = version_of(workspace, options.version)
    lines = TEMPLATES.lines("version.txt", version=version).splitlines()
    if options.images:
        lines += [_image(entry) for entry in workspace.test_sets.entries(version.number)]
    return lines, 0


def create(workspace: Workspace, options: argparse.Namespace) -> Said:
    return [f"{workspace.test_sets.create(options.name)}  “{' '.join(options.name.split())}”"], 0


def draft(workspace: Workspace, options: argparse.Namespace) -> Said:
    return [_line(TestSetDrafts(workspace).begin(options.version))], 0


def add(workspace: Workspace, options: argparse.Namespace) -> Said:
    sent = {"test_set": options.test_set, "cases": options.cases, "filter": options.filter}
    done = TestSetDrafts(workspace).add_chosen(AddToTestSet.of({**sent, "sources": options.sources}))
    already = f"; {done.already} were in it already" if done.already else ""
    return [f"{done.added} images came into “{options.test_set}”{already}."], 0


def remove(workspace: Workspace, options: argparse.Namespace) -> Said:
    return _changed(workspace, options, "remove-from-test-set", "removed", "taken out of")


def relabel(workspace: Workspace, options: argparse.Namespace) -> Said:
    words = "given another label in"
    return _changed(workspace, options, "relabel-in-test-set", "relabelled", words, label=options.label)


def set_split(workspace: Workspace, options: argparse.Namespace) -> Said:
    chosen, words = "" if options.split == NO_SPLIT else options.split, "put into another split in"
    return _changed(workspace, options, "set-split-in-test-set", "resplit", words, split=chosen)


def _changed(
    workspace: Workspace, options: argparse.Namespace, command: str, answer: str, words: str, **fields: str
) -> Said:
    """Send a command that changes images of a test set. The reply has the number of changed images at key `answer`."""
    commands = Commands()
    commands.take_on(TestSetDrafts(workspace))
    sent = {"test_set": options.test_set, "images": _images(workspace, options), **fields}
    done = commands.send(command, sent)[answer]
    return [f"{count_of(done, 'image', 'was')} {words} “{options.test_set}”."], 0


def split(workspace: Workspace, options: argparse.Namespace) -> Said:
    shares = {name: getattr(options, name) for name in ("train", "validation", "test")}
    sent = SplitTestSet.of({"test_set": options.test_set, "seed": options.seed, "keep": not options.anew, **shares})
    with counting("looks of the sources") as on_count:
        done = TestSetDrafts(workspace).split(sent, on_count)
    lines = [f"{done.groups} groups of images that stay together."]
    for name, number in done.splits.items():
        labels = ", ".join(f"{label or 'no label'} {count}" for label, count in sorted(done.labels[name].items()))
        lines.append(f"{name:10}  {number:7}  {labels}")
    return lines, 0


def release(workspace: Workspace, options: argparse.Namespace) -> Said:
    sent = {"test_set": options.test_set, "note": options.note, "thresholds": "\n".join(options.threshold)}
    with counting("looks of the sources") as on_count:
        drafts = TestSetDrafts(workspace)
        version = drafts.release(ReleaseTestSet.of({**sent, "unreviewed": options.unreviewed}), on_count=on_count)
    warning = drafts.warning(version)
    return [_line(version), version.id, *([warning] if warning else [])], 0


def diff(workspace: Workspace, options: argparse.Namespace) -> Said:
    """Return the differences of two versions, one line per image. The exit code is 1 if they differ."""
    changes = Versions(workspace).compare(options.old, options.new)
    lines = [f"added       {_image(entry)}" for entry in changes.added]
    lines += [f"removed     {_image(entry)}" for entry in changes.removed]
    lines += [f"relabelled  {_image(was)} -> {now.label or 'no label'}" for was, now in changes.relabelled]
    lines += [f"remasked    {_image(was)} -> {(now.mask or 'no mask')[:_SHORT]}" for was, now in changes.remasked]
    lines += [f"resplit     {_image(was)} -> {now.split or 'no split'}" for was, now in changes.resplit]
    return lines or ["They hold the same."], bool(changes)


def verify(workspace: Workspace, options: argparse.Namespace) -> Said:
    """Check every file of one version, or of all released versions. The exit code is 1 if there is damage, else 0."""
    all_versions = (version for test_set in workspace.test_sets.all() for version in test_set.versions)
    released = (version for version in all_versions if not version.is_draft)
    lines, fine = [], True
    for version in [version_of(workspace, options.version)] if options.version else released:
        with counting(version.words) as on_count:
            verified = Versions(workspace).verify(version, on_count)
        fine &= verified.whole
        lines.append(f"{version.words}: {verified.files} files, {'all whole' if verified.whole else 'not whole'}")
        lines += [] if verified.id_holds else ["  the id does not follow from what is in it"]
        lines += [f"  missing  {sha}" for sha in verified.missing] + [f"  damaged  {sha}" for sha in verified.damaged]
    orphans = workspace.images.orphans()
    lines += [f"orphan  {name}" for name in orphans]
    lines.append(f"{len(orphans)} files in the folder of images belong to nothing; that does no harm.")
    return lines, not fine


def export(workspace: Workspace, options: argparse.Namespace) -> Said:
    version, into = version_of(workspace, options.version), Path(options.into)
    licences = {model: text for one in options.profile for model, text in load_profile(one).drawing_licences().items()}
    with counting(version.words) as on_count:

        def progress(state: Progress) -> None:
            on_count(state.done, state.total)

        export_version(workspace, version, into, options.format, options.replace, progress, licences)
    manifest = read_manifest((into / MANIFEST).read_bytes()) or {}
    unknown = [model for model, licence in manifest["test_set"]["licences"].items() if not licence]
    return [str(into), *(f"no licence is known of {model}; name its profile with --profile" for model in unknown)], 0


def leaks(workspace: Workspace, options: argparse.Namespace) -> Said:
    """Search a folder of training images for images of a version. The exit code is 1 if one is found."""
    version = version_of(workspace, options.version)
    with counting("training images") as on_count:
        report = check_folder(workspace, version, Path(options.folder), on_count)
    lines = [_leak(row) for row in report.rows]
    same, copies = (sum(row.found == kind for row in report.leaks) for kind in ("same", "copy"))
    lines += TEMPLATES.paragraphs("leaks.txt", found=report, version=version, same=same, copies=copies)
    return lines, bool(report.leaks)


def _images(workspace: Workspace, options: argparse.Namespace) -> list[str]:
    """Return the hashes of the images that the options name. A name is the first digits of a hash; `-` reads names from
    standard input. Raises UserError for an image that the draft lacks, and for ambiguous digits.
    """
    names = [word for name in options.images for word in (sys.stdin.read().split() if name == "-" else [name])]
    hashes = sorted(entry.image for entry in workspace.test_sets.entries(draft_of(workspace, options.test_set).number))
    images = []
    for name in names:
        prefix = name.lower()
        first = bisect_left(hashes, prefix)
        alike = [image for image in hashes[first : first + 2] if image.startswith(prefix)]
        if len(prefix) < FEWEST_DIGITS or not alike:
            raise UserError(
                f"The draft of “{options.test_set}” has no image {name[:80]!r}: give at least {FEWEST_DIGITS} digits "
                "of its hash, as `show --images` prints them."
            )
        if len(alike) > 1:
            raise UserError(f"Several hashes of images in “{options.test_set}” begin with {name}: give more digits.")
        images.append(alike[0])
    return images


def _line(version: SetVersion) -> str:
    short_id = "draft" if version.is_draft else version.id[:_SHORT]
    return f"{version.test_set}  {short_id:{_SHORT}}  {version.entries:7} images  {version.words}"


def _image(entry: SetEntry) -> str:
    origin = f"test case {entry.test_case}" if entry.test_case is not None else entry.role
    return f"{entry.image[:_SHORT]}  {entry.split or 'no split'}  {entry.label or 'no label'}  {origin}"


def _leak(row: LeakRow) -> str:
    if row.found == "not compared":
        return f"not compared  {row.file}: {row.reason}"
    whose = "the source" if row.role == "source" else "the image"
    away = f", {row.distance} bits away" if row.found == "alike" else ""
    return f"{row.found:12}  {row.file}: {whose} {row.image[:_SHORT]}{away}"
