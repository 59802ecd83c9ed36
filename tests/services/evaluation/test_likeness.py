"""Clusters of edits, KID, FID and the perplexity ratio of an evaluation, by the embedded models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from core.latest import Latest
from evaluation.edit_clusters import EditCluster
from pipeline.profiles.profile import load_profile
from services.evaluation import likeness
from services.evaluation.facts import file_of, likeness_facts
from services.evaluation.likeness import Likeness
from services.evaluation.types import EditGroup, LikenessFigures
from services.studio import Studio
from services.work_queue import WorkView
from storage.workspace import Workspace
from tests.support.demo_server import demo_models
from tests.support.evaluation_cases import BIRDS, ROADS, scenes_that_are_read
from tests.support.made_once import MadeOnce
from ui.evaluate.page import report_html

pytestmark = [pytest.mark.demo, pytest.mark.slow]
SECONDS = 300


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Iterator[Studio]:
    with Workspace(scenes_that_are_read(made_once, tmp_path_factory.mktemp("likeness"))) as workspace:
        made = Studio(load_profile("demo"), demo_models(), workspace)
        yield made
        made.close()


def read(studio: Studio) -> WorkView:
    sent = studio.commands.send("begin-likeness", {"filter": "kind=classification"})
    return studio.likeness.work.wait(sent["work"], SECONDS)


def test_what_is_missing_is_read_once_and_everything_is_told(studio: Studio) -> None:
    before = studio.likeness.figures(BIRDS)
    cases = studio.evaluations.cases(BIRDS.subject)
    assert before.missing > len(cases.pictures) and not before.fidelity and not before.groups
    assert before.perplexity.why == "they are not read yet" and "Not read yet: " in before.notes[0]

    assert read(studio).state == "done"
    found = studio.likeness.figures(BIRDS)
    assert not found.missing and not found.notes and list(found.fidelity) == ["test cases", "reconstructions"]
    drawn, again = found.fidelity["test cases"], found.fidelity["reconstructions"]
    assert drawn.extractor == studio.profile.embedder.title and "too few to say: 14 sources" in drawn.kid.why
    assert again.fid.n == drawn.fid.n == 14 and found.language == studio.driver.models.language.name
    assert found.perplexity.n == 14 and 0.5 < (found.perplexity.value or 0) < 10
    assert read(studio).total == 0, "nothing is read twice"

    # The workspace stores the vectors, so another studio must only read the captions.
    other = Likeness(studio.workspace, studio.evaluations, studio.meaning, studio.driver.models)
    texts = {
        text for pair in likeness._Needs(studio.evaluations.result(BIRDS), studio.workspace).captions for text in pair
    }
    assert other.figures(BIRDS).missing == len(texts)


def test_the_vectors_of_words_are_those_of_the_embedder(studio: Studio) -> None:
    read(studio)
    embedder = studio.driver.models.embedder
    needs = likeness._Needs(studio.evaluations.result(BIRDS), studio.workspace)
    kept = studio.meaning.placed(needs.words)
    assert kept == pytest.approx(np.array([embedder.text(word) for word in needs.words]), abs=1e-3)
    source = studio.workspace.images.load(needs.originals[0].sha).convert("RGB")
    assert studio.meaning.placed(needs.originals[:1])[0] == pytest.approx(np.array(embedder.image(source)), abs=1e-3)


def test_reports_and_scripts_have_it(studio: Studio) -> None:
    read(studio)
    found, figures = studio.evaluations.evaluate(BIRDS), studio.likeness.figures(BIRDS)
    cluster = EditCluster(0, (1, 2), replace(figures.perplexity, value=-0.5, low=-0.6, high=-0.4), 0.01, 0.02)
    figures = replace(figures, groups=(EditGroup("bird", "sunny → foggy", cluster, (7, 9), ()),))
    text = file_of(found, "markdown", figures).decode()
    assert "| test cases, by " in text and "| bird: sunny → foggy | change of the probability" in text
    assert "| -0.5 (-0.6 to -0.4) | 14 |" in text and "| KID | cannot tell: too few to say: 14 sources" in text
    lines = file_of(found, "csv", figures).decode().splitlines()
    assert any(line.startswith("groups of edits,bird: sunny → foggy,") for line in lines)
    assert len(lines) - len(file_of(found, "csv").decode().splitlines()) == 6
    facts = json.loads(json.dumps(likeness_facts(figures), allow_nan=False))
    assert facts["groups"][0] == {
        "label": "bird",
        "edits": "sunny → foggy",
        "entries": [7, 9],
        "p_value": 0.01,
        "p_adjusted": 0.02,
    }
    page = report_html(found, None, lambda sha: b"", figures)
    part = page[page.index('id="part-likeness"') :].split("</section>")[0]
    assert "sunny → foggy" in part and "<button" not in part and 'href="/' not in part
    shown = studio.commands.send("show-likeness", {"filter": "kind=classification"})
    assert shown["missing"] == 0 and {row["part"] for row in shown["figures"]} >= {"likeness"}


def test_a_segmenter_has_groups_over_all_its_images(studio: Studio) -> None:
    work = studio.likeness.begin(ROADS)
    assert studio.likeness.work.wait(work.id, SECONDS).state == "done"
    found = studio.likeness.figures(ROADS)
    assert found.changed == "the share of right pixels" and all(not group.label for group in found.groups)


def test_groups_are_found_in_what_the_words_say(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clusters are those of `edit_clusters`, and their indices lead to the test cases with these edits."""
    read(studio)
    result = studio.evaluations.result(BIRDS)
    one_label = replace(result.cases.generated, label=np.zeros(len(result.cases.generated), np.int64))
    result = replace(result, cases=replace(result.cases, generated=one_label))
    needs = likeness._Needs(result, studio.workspace)
    groups = studio.likeness._groups(result, needs)
    assert groups
    edits = {place: f"{old} → {new}" for place, old, new in needs.edits}
    of_entry = dict(zip(result.cases.table.entry[result.cases.generated.row].tolist(), range(10**6), strict=False))
    for group in groups:
        assert {edits[of_entry[entry]] for entry in group.entries} & set(group.edits.split(" and ")[0].split(", "))
        assert group.cluster.change.n == len(group.entries) >= 5


def test_a_server_tells_no_probabilities(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        name = "a server"

    monkeypatch.setattr(studio.likeness, "_scores", {})
    monkeypatch.setattr(studio.likeness, "_no_score", "")
    monkeypatch.setattr(studio.likeness, "_found", Latest[LikenessFigures](4))
    monkeypatch.setattr(type(studio.driver.models), "language", Server())
    assert read(studio).state == "done"
    found = studio.likeness.figures(BIRDS)
    assert (
        found.perplexity.why == "the language model a server does not tell how likely a text is" and not found.missing
    )
