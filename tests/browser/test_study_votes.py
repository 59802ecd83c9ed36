"""Import votes from a Mechanical Turk file into a running study on its page: first a preview, then a confirmation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from playwright.sync_api import expect

from core.studies import ControlPolicy, Eligibility, NewItem
from services.studies.templates import TEMPLATES
from tests.support.routing import routed
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

RULES = replace(TEMPLATES["classification"].rules(), eligibility=Eligibility(0.0, 0), controls=ControlPolicy(share=0.0))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("votes") / "workspace", ScriptedModels()) as made:
        yield made


def test_a_file_of_votes_is_looked_at_and_then_taken(page: Page, served: tuple[str, Studio], tmp_path: Path) -> None:
    url, studio = served
    studies = studio.workspace.studies
    study_id = studies.create("From elsewhere", RULES)
    image = studio.workspace.images.add(Image.effect_noise((64, 64), 50).convert("RGB"))
    studies.add_items(study_id, [NewItem(image, label="bird", origin={"file": f"bird_{n}.png"}) for n in (1, 2)])
    studies.start(study_id)
    rows = [
        f"{worker},Tue Nov 18 13:06:51 PST 2014,https://example.org/bird_{n}.png,{answer}"
        for worker, answer in (("A0", "perhaps"), ("A1", "Yes"), ("A2", "no"), ("A3", "yes"))
        for n in (1, 2)
    ]
    file = tmp_path / "Batch_1.csv"
    file.write_text("\n".join(["WorkerId,SubmitTime,Input.image_url,Answer.valid", *rows]))
    page.goto(f"{url}study/{study_id}/run")
    page.click(".files summary")
    Image.effect_noise((64, 64), 50).save(tmp_path / "another.png")
    page.set_input_files("#bring", tmp_path / "another.png")
    expect(page.locator("#bring-note")).to_contain_text("its images are added at once")
    assert studies.get(study_id).items == 2
    with routed(page, "**/study/files/**", lambda route: route.abort()):
        page.click("#bring-go")
        expect(page.locator("[data-problem=bring]")).to_contain_text("No answer from the studio")
    page.click("#bring-go")  # the page still has the file
    expect(page.locator("#bring-note")).to_contain_text("1 image added")
    assert studies.get(study_id).items == 3
    page.set_input_files("#bring", {"name": "x.zip", "mimeType": "application/zip", "buffer": b"PK\x03\x04no"})
    page.click("#bring-go")
    expect(page.locator("[data-problem=bring]")).to_contain_text("pack it again")
    assert page.is_hidden("#votes-go")
    page.set_input_files("#votes-file", tmp_path / "Batch_1.csv")
    page.wait_for_selector("#votes-go:visible")
    assert page.inner_text("#votes-note") == "6 votes of 3 workers."
    assert page.inner_text("#votes-problem").startswith("Row 1: Please choose one of the answers offered")
    assert page.inner_text("#votes-go") == "Bring in the other 6"
    assert studies.data(study_id).votes == ()
    page.click("#votes-go")
    expect(page.locator("#votes-note")).to_contain_text("brought in")
    assert page.inner_text("#votes-note").startswith("6 votes of 3 workers brought in. Left out: Row 1: ")
    assert len(studies.data(study_id).votes) == 6
    assert studies.get(study_id).votes == 6
    page.set_input_files("#votes-file", tmp_path / "Batch_1.csv")
    page.wait_for_selector("#votes-go:visible")
    page.click("#votes-go")
    expect(page.locator("#votes-problem")).to_contain_text("has a vote on")
    page.set_input_files("#votes-file", {"name": "x.csv", "mimeType": "text/csv", "buffer": b"a,b\n"})
    expect(page.locator("#votes-problem")).to_contain_text("no column WorkerId")
    assert page.is_hidden("#votes-go")
