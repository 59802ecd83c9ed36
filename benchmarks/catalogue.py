"""The catalogue (index of all images) of a large workspace: times of pages, filters, orders, search and counts, of
setting up a study, and of keeping the catalogue up to date.

`python -m benchmarks.catalogue` runs only this benchmark, with 125,000 test cases. `--large` adds a measurement with a
million test cases. It needs 6 GB of disk and some minutes of preparation.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import sqlite_utils
from numpy.typing import NDArray
from PIL import Image

from benchmarks.figures import Figure, reported
from core.catalogue import GRIDS, Order, PageKey
from core.image_filter import Between, Facet, ImageFilter, ScoreBand
from core.lineage import Lineage, TestCase
from core.predictions import Guess, Prediction
from core.types import EDIT_TYPES, Caption, Check, CounterfactualCaption, Edit, StageValue, Task, Trace, to_plain
from pipeline.methods.controlnet import CONTROL_IMAGE, ControlNetSettings
from pipeline.recipes import RECONSTRUCTION
from services.evaluation.scoring import score_images
from services.studies.drafts import DrawsItems, StudyDrafts
from services.studies.item_filter import HOWS
from services.studies.templates import TEMPLATES
from storage.curation.case_columns import Outcome
from storage.curation.catalogue import Catalogue
from storage.curation.decisions import Target
from storage.curation.entry_sets import CHUNK, listed
from storage.curation.scores import NewScores
from storage.curation.stored_sets import make_set, value_id
from storage.pending import QUERIES
from storage.workspace import Workspace

SIZES = (125_000, 1_000_000)
PAGE, COUNT = 25.0, 100.0
"""Maximum milliseconds for one page or one count, and for many counts or a change of a study's filter."""
DECIDED = 2_000.0
"""Maximum milliseconds for deciding about `AT_ONCE` images, or for undoing it."""
MEGABYTES = 600
"""Maximum megabytes by which reading may increase the memory."""
SCORED = 4_000.0
"""Maximum milliseconds for scoring 125,000 images."""
TIMES = 200
CLASSES = 100
TASKS = tuple(Task("classification", f"class {number}") for number in range(CLASSES))
A_RUN = 8
"""Number of test cases of a run."""
MODEL = "a model under test"
CHECKS = ("label seen", "edges kept", "edit shows", "like the source")
WORDS = 5_000
ALTERNATIVES = 300
"""Number of possible alternatives for each edit type."""
BATCHES = 20
"""Number of batches. Together, these batches made all runs except the first run."""
AT_ONCE = 1_000
"""Number of images that are accepted or rejected together."""
_LIMIT = 50


def measure(sizes: Sequence[int] = SIZES[:1]) -> list[Figure]:
    """Measure workspaces of these sizes. Raises AssertionError if reading needs more memory than `MEGABYTES`."""
    figures: list[Figure] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            made_apart(prepared, Path(folder), size)
            print(f"{size:,} test cases: made in {time.monotonic() - began:.0f} s", flush=True)
            before = resident()
            with Workspace(Path(folder)) as workspace:
                figures += [*pages(workspace, size), *totals(workspace, size), *set_up(workspace, size)]
                figures += [*scoring(workspace, size), *saving(workspace, size)]
            grown = resident() - before
            print(f"{size:,} test cases: {grown:.0f} MB more memory than before they were read", flush=True)
            assert grown <= MEGABYTES, f"{grown:.0f} MB"
    return figures


def made_apart(make: Callable[..., object], *arguments: object) -> None:
    """Call the function `make` in a separate process, so that the memory of this process does not grow. Raises
    AssertionError if it fails.
    """
    making = multiprocessing.get_context("spawn").Process(target=make, args=arguments)
    making.start()
    making.join()
    assert making.exitcode == 0, "the workspace was not made"


def resident() -> float:
    """Return the peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(what: str, reads: Iterator[Callable[[], object]], bound: float, share: float = 0.95) -> Figure:
    """Measure the milliseconds of each call in `reads`. `Figure` explains `bound` and `share`."""
    found = []
    for read in reads:
        began = time.perf_counter()
        read()
        found.append(1000 * (time.perf_counter() - began))
    return Figure(what, tuple(found), bound, share=share)


def pages(workspace: Workspace, size: int) -> list[Figure]:
    """Measure pages of the gallery with random filters, orders, search texts and positions."""
    fate, catalogue = random.Random(3), workspace.catalogue
    orders = (Order(), Order("oldest"), Order("reviewed", falling=True), *(Order("check", name) for name in CHECKS))

    def some_filter() -> ImageFilter:
        facets: dict[Facet, tuple[str, ...]] = {}
        if fate.random() < 0.6:
            facets["class"] = (f"class {fate.randrange(CLASSES)}",)
        if fate.random() < 0.6:
            facets["edit type"] = (fate.choice(EDIT_TYPES),)
        if fate.random() < 0.6:
            facets["review"] = (fate.choice(("accepted", "rejected", "open")),)
        if fate.random() < 0.3:
            facets["batch"] = (f"Whole #{fate.randrange(1, BATCHES + 1)}",)
        models = {MODEL: ("newly wrong",)} if fate.random() < 0.3 else {}
        low = fate.uniform(-1, 1)
        between = (Between(fate.choice(CHECKS), low, low + fate.random()),) if fate.random() < 0.3 else ()
        return ImageFilter(facets, models=models, between=between)

    def word() -> str:
        return f"word{int(WORDS ** fate.random())}"

    def page(image_filter: ImageFilter, order: Order, at: int | None = None) -> Callable[[], object]:
        return lambda: catalogue.page(image_filter, order, _LIMIT, at=at)

    everything, name = ImageFilter(), f", {size:,} test cases"
    arranged = []
    for order in (Order("source"), Order("information")):
        arranged += [
            timed(f"a page at any place, by {order.sort}{name}",
                  (page(everything, order, fate.randrange(size)) for _ in range(TIMES)), PAGE),
            timed(f"a page by any filter, by {order.sort}{name}",
                  (page(some_filter(), order) for _ in range(TIMES)), PAGE),
            timed(f"the page behind any image, by {order.sort}{name}",
                  (partial(catalogue.page, everything, order, _LIMIT, key_at(catalogue, order, fate.randrange(size)))
                   for _ in range(TIMES)), PAGE),
        ]  # fmt: skip
    held_list, information = catalogue.hold(everything, Order("information")), Order("information")
    arranged += [
        timed(f"a page of what is held, by information{name}",
              (partial(catalogue.page, everything, information, _LIMIT, at=fate.randrange(size), held=held_list)
               for _ in range(TIMES)), PAGE),
        timed(f"holding what any filter fits, by information{name}",
              (partial(catalogue.hold, some_filter(), information) for _ in range(TIMES)), PAGE),
        timed(f"the place of an image, in any order{name}",
              (partial(catalogue.place, everything, fate.choice((*orders, information, Order("source"))),
                       fate.randrange(1, size)) for _ in range(TIMES)), PAGE),
    ]  # fmt: skip
    return [
        *arranged,
        timed(f"a page at any place, in any order{name}",
              (page(everything, fate.choice(orders), fate.randrange(size)) for _ in range(TIMES)), PAGE),
        timed(f"a page by any filter, the newest first{name}",
              (page(some_filter(), Order()) for _ in range(TIMES)), PAGE),
        timed(f"a page by any filter, in any order{name}",
              (page(some_filter(), fate.choice(orders)) for _ in range(TIMES)), PAGE),
        timed(f"a page by a word{name}", (page(ImageFilter(text=word()), Order()) for _ in range(TIMES)), PAGE),
        timed(f"a page by a word and any filter{name}",
              (page(ImageFilter(**{**vars(some_filter()), "text": word()}), Order()) for _ in range(TIMES)), PAGE),
        timed(f"how many any filter fits{name}",
              (partial(catalogue.count, some_filter()) for _ in range(TIMES)), PAGE),
    ]  # fmt: skip


def key_at(catalogue: Catalogue, order: Order, place: int) -> PageKey:
    """Return the key of the image at rank `place` of an order. A page of the gallery can begin at this key."""
    return catalogue.page(ImageFilter(), order, 1, at=place).entries[0].key


def totals(workspace: Workspace, size: int) -> list[Figure]:
    """Measure the time to count images for the gallery's tables, filters and histograms."""
    fate, catalogue, name = random.Random(4), workspace.catalogue, f", {size:,} test cases"

    def wanted() -> ImageFilter:
        return ImageFilter({"review": (fate.choice(("accepted", "open")),), "class": (f"class {fate.randrange(9)}",)})

    return [
        timed(f"the coverage table{name}",
              (partial(catalogue.coverage, GRIDS[n % 2]) for n in range(20)), COUNT),
        timed(f"the counts of all facets, of all{name}", (catalogue.facets for _ in range(20)), COUNT),
        timed(f"the counts of all facets, of a filter{name}",
              (partial(catalogue.facets, wanted()) for _ in range(20)), COUNT),
        timed(f"the counts of all facets, of a batch{name}",
              (partial(catalogue.facets, ImageFilter.read(f"batch=Whole %23{n + 1}")) for n in range(20)), COUNT),
        timed(f"the histogram of a check, of a filter{name}",
              (partial(catalogue.histogram, CHECKS[n % 4], wanted()) for n in range(20)), COUNT),
    ]  # fmt: skip


def set_up(workspace: Workspace, size: int) -> list[Figure]:
    """Measure the time to describe a new filter for a study that is being set up."""
    study = workspace.studies.create("A study", TEMPLATES["classification"].rules())
    drafts = StudyDrafts(workspace, lambda run, model: None)

    def describe(number: int) -> Callable[[], object]:
        standing = "model=:newly wrong&model=:wrong&" if number % 4 == 3 else ""
        filter_text = f"{standing}{('', 'review=accepted', '-review=rejected')[number % 3]}"
        query = DrawsItems.of({"study": study, "filter": filter_text, "how": HOWS[number % 3], "count": 100})
        return lambda: drafts.describe_filter(query)

    return [timed(f"a change of a study's filter, {size:,} test cases", map(describe, range(24)), COUNT)]


def scoring(workspace: Workspace, size: int) -> list[Figure]:
    """Measure the times to score all images and to find images by their scores. A tenth of the images has no score."""
    fate, catalogue, columns = random.Random(6), workspace.catalogue, workspace.case_columns
    votes = [Outcome(case, fate.choice(("valid", "invalid")), "s", "A study") for case in fate.sample(range(size), 600)]
    chance = np.random.default_rng(6)

    def score() -> None:
        table, checks = columns.table(), columns.checks()
        found = score_images(table, checks, votes, "classification")
        assert not isinstance(found, str), found
        some = chance.random(len(table)) < 0.9
        spread = chance.uniform(0, 1, int(some.sum()))  # random, since scores from random votes would be alike
        workspace.scores.save(NewScores(found.studies, found.learnt, found.view.own, table.entry[some], spread))

    def wanted() -> ImageFilter:
        low = fate.random()
        band = fate.choice((ScoreBand(low), ScoreBand(None, low), ScoreBand(low, low + 0.1), None))
        facets: dict[Facet, tuple[str, ...]] = {"class": (f"class {fate.randrange(9)}",)} if fate.random() < 0.5 else {}
        return ImageFilter(facets, scores=(band,))

    name = f", {size:,} test cases"
    return [
        timed(f"all images scored{name}", (score for _ in range(5)), SCORED * size / SIZES[0]),
        timed(f"a page by any score{name}",
              (partial(catalogue.page, wanted(), Order(fate.choice(("newest", "score"))), _LIMIT)
               for _ in range(TIMES)), PAGE),
        timed(f"the counts of all facets, by any score{name}",
              (partial(catalogue.facets, wanted()) for _ in range(20)), COUNT),
        timed(f"how many have which score{name}",
              (partial(catalogue.scores, wanted(), 0.5) for _ in range(20)), COUNT),
    ]  # fmt: skip


def saving(workspace: Workspace, size: int) -> list[Figure]:
    """Measure saving test cases and reviews. The floor is the time to save the same without updating the catalogue."""
    run = workspace.runs.search(1)[0].id
    fate = random.Random(5)
    cases: list[int] = []

    def save() -> None:
        noise = Image.frombytes("RGB", (256, 256), fate.randbytes(3 * 256 * 256))
        cases.append(workspace.test_cases.append(run, None, made(fate, noise, fate.randrange(CLASSES))))

    def review() -> None:
        workspace.test_cases.review(fate.choice(cases), fate.choice(("accepted", "rejected")))

    figures, away = [], list[str]()
    for what, write, bound in (("a test case saved", save, 100.0), ("a review saved", review, 25.0)):
        with_it: list[float] = []
        without: list[float] = []
        for number in range(60):
            if number % 10 == 0:  # alternating blocks of ten, so that the machine has the same load for both
                _follow(workspace, following := number % 20 == 0, away)
            began = time.perf_counter()
            write()
            (with_it if following else without).append(1000 * (time.perf_counter() - began))
        _follow(workspace, True, away)
        figures.append(Figure(f"{what}, {size:,} test cases", tuple(with_it), bound, floor=tuple(without)))
    decisions = workspace.decisions

    def decide() -> object:
        return decisions.review(Target(fate.sample(range(1, size), AT_ONCE)), fate.choice(("accepted", "rejected")))

    name = f"{AT_ONCE:,} images decided at once, {size:,} test cases"
    figures.append(timed(name, (decide for _ in range(10)), DECIDED))
    name = f"{AT_ONCE:,} decisions taken back at once, {size:,} test cases"
    return [*figures, timed(name, (decisions.take_back for _ in range(10)), DECIDED)]


def _follow(workspace: Workspace, follows: bool, away: list[str]) -> None:
    """Remove the database triggers that update the catalogue and put them into `away`, or restore those in `away`."""

    def change(db: sqlite_utils.Database) -> None:
        if not follows:
            away.extend(_taken_away(db))
        while follows and away:
            db.execute(away.pop(0))

    workspace._database.write(change)


def _taken_away(db: sqlite_utils.Database) -> list[str]:
    """Remove the database triggers that update the catalogue, and return their SQL."""
    query = """
        SELECT name, sql FROM sqlite_master
        WHERE type = 'trigger' AND (name LIKE 'catalogue%' OR tbl_name = 'catalogue') ORDER BY rowid
    """
    found = db.execute(query).fetchall()
    for name, _ in found:
        db.execute(f"DROP TRIGGER {name}")
    return [sql for _, sql in found]


def made(fate: random.Random, image: Image.Image, label: int) -> TestCase:
    """Return a test case with edits, captions and checks."""
    edits = tuple(
        Edit(f"word{int(WORDS ** fate.random())}", f"{kind} {int(ALTERNATIVES ** fate.random())}", kind)
        for kind in fate.sample(EDIT_TYPES, fate.choice((1, 1, 2)))
    )
    caption = CounterfactualCaption(" ".join(f"word{int(WORDS ** fate.random())}" for _ in range(25)), edits)
    figures = [(name, round(fate.gauss(0.3, 0.3), 4)) for name in CHECKS]
    checks = tuple(Check(name, figure > 0, figure, threshold=0.0) for name, figure in figures)
    task = Task("classification", f"class {label}")
    settings = ControlNetSettings()
    lineage = Lineage(caption, 1, "controlnet", "a model", caption.text, "", settings, 0.5, task=task)
    return TestCase(image, lineage, {CONTROL_IMAGE: image}, checks)


def prepared(
    folder: Path,
    size: int,
    shared: int = 64,
    side: int = 16,
    apart: bool = False,
    tasks: Sequence[Task] = TASKS,
    mask_classes: Mapping[int, str] | None = None,
) -> None:
    """Make a workspace of `size` test cases, eight per run.

    The test cases share `shared` images of `side` pixels. With `apart`, nearly every test case has its own image, whose
    file is missing, and the last test case of a run is a reconstruction. In about a tenth of the classes, no image is
    decided. The `tasks` alternate between runs. With `mask_classes`, runs have masks whose files are missing.
    """
    fate = random.Random(size)
    with Workspace(folder) as workspace:
        pictures = [_picture(number, side) for number in range(shared)]
        first = workspace.runs.create(pictures[0], Task("classification", "class 0"), "demo", "Street 0", {"steps": 4})
        value = StageValue(Caption("A street."), Trace("model"), "k")
        workspace.runs.append_value(first, "caption", value)
        for picture in pictures:
            workspace.test_cases.append(first, None, made(fate, picture, 0))
        for picture in pictures:
            sha = workspace.images.add(picture)
            workspace.predictions.append(sha, MODEL, Prediction("classification", MODEL, (Guess("class 1", 0.5),)))
        workspace._database.write(lambda db: _fill(db, fate, first, size, apart, tasks, mask_classes))


def _picture(number: int, side: int) -> Image.Image:
    """Return a different picture for each number, about as hard to encode as a photograph."""
    blurred = Image.frombytes("RGB", (16, 16), random.Random(number).randbytes(3 * 256))
    return blurred.resize((side, side), Image.Resampling.BICUBIC)


def _fill(
    db: sqlite_utils.Database,
    fate: random.Random,
    first: str,
    size: int,
    apart: bool,
    of_runs: Sequence[Task],
    mask_classes: Mapping[int, str] | None,
) -> None:
    triggers = _taken_away(db)
    run, state, value, case = (
        dict(next(iter(db.query(f"SELECT * FROM {table} ORDER BY rowid LIMIT 1"))))
        for table in ("runs", "run_states", "stage_values", "test_cases")
    )
    shas = [sha for (sha,) in db.execute("SELECT DISTINCT image FROM test_cases")]
    samples = [made(fate, Image.new("RGB", (1, 1)), 0) for _ in range(5_000)]
    packed = [
        (json.dumps(to_plain(one.lineage.counterfactual)), json.dumps([to_plain(check) for check in one.checks]))
        for one in samples
    ]

    def add(table: str, row: dict[str, object], rows: Iterator[dict[str, object]]) -> None:
        names = [name for name in row if table == "runs" or name != "id"]
        query = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})"
        db.conn.executemany(query, ([{**row, **one}[name] for name in names] for one in rows))

    numbers = range(1, size // A_RUN)

    def run_of(number: int) -> str:
        return f"{number:016x}"

    (picture,) = db.query("SELECT * FROM images WHERE sha = ?", [run["source"]])
    add("images", dict(picture), ({"sha": f"{n:064x}"} for n in numbers))  # nobody opens a source here
    add("runs", run, ({"id": run_of(n), "source": f"{n:064x}"} for n in numbers))
    tasks = [json.dumps(to_plain(one)) for one in of_runs]

    def state_of(number: int) -> dict[str, object]:
        state: dict[str, object] = {"run": run_of(number), "name": f"Street {number}"}
        state["task"] = tasks[number % len(tasks)]
        if mask_classes is not None:
            state |= {"mask": f"{number:064x}", "mask_classes": json.dumps(mask_classes)}
        return state

    add("run_states", state, map(state_of, numbers))
    captions = (json.dumps({"text": f"A street with word{int(WORDS ** fate.random())}."}) for _ in numbers)
    add("stage_values", value, ({"run": run_of(n), "value": next(captions)} for n in numbers))

    def cases() -> Iterator[dict[str, object]]:
        for number in range(A_RUN, size):
            of_run = number // A_RUN
            if of_run in numbers:
                caption, checks = fate.choice(packed)
                task = tasks[of_run % len(tasks)]
                yield {
                    "run": run_of(of_run),
                    "image": f"e{number:063x}" if apart else fate.choice(shas),
                    "counterfactual": caption,
                    "checks": checks,
                    "task": task,
                    "recipe": RECONSTRUCTION.name if apart and number % A_RUN == A_RUN - 1 else case["recipe"],
                }

    if apart:
        add("images", dict(picture), ({"sha": f"e{n:063x}"} for n in range(A_RUN, size)))
    add("test_cases", case, cases())
    _fill_batches(db)
    db.execute("""
        INSERT INTO reviews (test_case, verdict, reason, created)
        SELECT id, iif(id % 3 = 0, 'rejected', 'accepted'), '', created FROM test_cases
        WHERE id % 5 < 2 AND task NOT LIKE '%"class _9"%' ORDER BY id * 7919 % 1000003
    """)
    for table in ("cells", "outcomes", "numbers", "sets", "values"):
        db.execute(f"DELETE FROM catalogue_{table}")
    db.execute("INSERT INTO catalogue_words (catalogue_words) VALUES ('delete-all')")
    db.execute("DELETE FROM catalogue")
    db.execute("DELETE FROM sqlite_sequence WHERE name = 'catalogue'")
    _fill_catalogue(db)
    for statement in triggers:
        db.execute(statement)


def _fill_catalogue(db: sqlite_utils.Database) -> None:
    """Add all test cases to the catalogue at once, by its SQL views. Triggers would add them one by one."""
    columns = (
        "test_case, image, source, run, kind, label, classes, edit_types, edits, weather, time_of_day, profile, "
        "recipe, method, verdict, review, there, created"
    )
    for statement in (
        f"INSERT INTO catalogue ({columns}) SELECT {columns} FROM entries_of_test_cases ORDER BY test_case",
        f"""
        INSERT INTO catalogue_outcomes
            (entry, model, prediction, source_prediction, measured, source_right, image_right)
        {QUERIES["outcomes"]}
        """,
        "CREATE TEMP TABLE filling AS SELECT entry, measure, number FROM catalogue_measures",
        "INSERT INTO catalogue_values (facet, value) SELECT DISTINCT 'measure', measure FROM filling",
        """
        INSERT INTO catalogue_numbers SELECT id, number, entry
        FROM filling JOIN catalogue_values ON facet = 'measure' AND value = measure ORDER BY 1, 2, 3
        """,
        "DROP TABLE filling",
    ):
        db.execute(statement)
    sets: dict[tuple[str, str], list[NDArray[np.int64]]] = defaultdict(list)
    (last,) = db.execute("SELECT coalesce(max(id), 0) FROM catalogue").fetchone()
    for first in range(0, last + 1, CHUNK):
        query = """
            SELECT facet, value, group_concat(entry) FROM catalogue_facets WHERE entry >= ? AND entry < ? GROUP BY 1, 2
        """
        for facet, value, entries in db.execute(query, [first, first + CHUNK]):
            sets[facet, value].append(np.sort(listed(entries)))
    for name in sorted(sets, key=lambda name: name != ("there", "")):
        make_set(db, value_id(db, *name), np.concatenate(sets[name]))
    for statement in (
        """
        INSERT INTO catalogue_cells SELECT grid, line, place, facet, value, count(*)
        FROM catalogue_places JOIN (
            SELECT id AS entry, 'review' AS facet, verdict AS value FROM catalogue
            UNION ALL SELECT entry, 'model:' || model, standing FROM catalogue_outcomes
        ) USING (entry) WHERE entry IN (SELECT id FROM catalogue WHERE there) GROUP BY 1, 2, 3, 4, 5
        """,
        """
        INSERT INTO catalogue_words (rowid, caption, counterfactual, edited)
        SELECT entry, caption, counterfactual, edited FROM catalogue_texts
        """,
    ):
        db.execute(statement)


def _fill_batches(db: sqlite_utils.Database) -> None:
    """Fill the tables of batches, as if batches had made all test cases except those of the first run."""
    for number in range(BATCHES):
        db.execute(
            "INSERT INTO batches (name, plan, digest, profile, recipe, settings, at_once, created) "
            "SELECT 'Whole', '', ?, profile, 'dillema', '{}', 8, created FROM runs LIMIT 1",
            [str(number)],
        )
    db.execute(
        f"""
        INSERT INTO batch_sources (batch, key, label, split, attributes, stamp, run)
        SELECT 1 + rowid % {BATCHES}, id, '', '', '{{}}', '', id FROM runs WHERE rowid > 1
        """
    )
    db.execute(
        """
        INSERT INTO batch_work (batch, pass, lot, place, source, key, seed, state, test_case, changed)
        SELECT batch, 'images', test_cases.id, 0, batch_sources.id, test_cases.id, 0, 'done', test_cases.id, created
        FROM test_cases JOIN batch_sources USING (run)
        """
    )


def main() -> int:
    """Measure, print the tables, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalogue", description="Measures the catalogue.")
    parser.add_argument("--large", action="store_true", help="a million test cases as well (minutes)")
    options = parser.parse_args()
    return reported(
        measure(SIZES if options.large else SIZES[:1]),
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end",
    )


if __name__ == "__main__":
    raise SystemExit(main())
