"""The parts of the page Evaluate as markup, without a browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from services.evaluation.commands import OnModel
from services.evaluation.types import EditRow, EditTable, Subject, SubjectView
from tests.services.evaluation.test_results import BIRDS, read_all, service_of
from tests.support.evaluation_cases import fill, scenes_that_are_read
from tests.support.made_once import MadeOnce
from tests.support.workspaces import workspace_in
from ui.evaluate.comparing import comparison_part
from ui.evaluate.page import report_html, subjects_part
from ui.evaluate.result import MOST_ROWS, result_part
from ui.evaluate.words import Links, Place, evaluate_address

pytestmark = pytest.mark.slow


def test_a_table_of_a_thousand_edits_has_the_first_hundred_on_the_page_and_says_so(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        fill(workspace, 3)
        service = service_of(workspace)
        read_all(service, BIRDS)
        found = service.evaluate(BIRDS)
        service.close()
    one = found.edits["alternative"][0]
    rows: list[EditRow] = [replace(one, row=replace(one.row, name=f"word {number}")) for number in range(1000)]
    page = str(result_part(replace(found, edits={"alternative": tuple(rows)}), Links()))
    assert f"word {MOST_ROWS - 1}<" in page and f"word {MOST_ROWS}<" not in page
    assert "900 further rows" in page
    few = replace(found, edits={"alternative": tuple(rows[:MOST_ROWS])})
    assert "further rows" not in str(result_part(few, Links()))


def test_rows_of_too_few_test_cases_are_folded_on_the_page_and_in_the_report(
    made_once: MadeOnce, tmp_path: Path
) -> None:
    with workspace_in(scenes_that_are_read(made_once, tmp_path)) as workspace:
        service = service_of(workspace)
        found = service.evaluate(BIRDS)
        ranking = service.rank(BIRDS, 10)
        service.close()
    one = found.edits["alternative"][0]
    rows = tuple(
        replace(one, row=replace(one.row, name=f"word {n}", n=n, newly_wrong=share, newly_wrong_cases=wrong))
        for n, wrong, share in ((25, 5, 0.2), (20, 2, 0.1), (19, 14, None), (3, 0, None))
    )
    found = replace(found, edits={"alternative": rows})
    for page in (str(result_part(found, Links())), report_html(found, ranking, lambda sha: b"")):
        part = page[page.index('id="edits"') :].split("</section>")[0]
        in_sight, folded = part.split("<details", 1)
        assert "word 25" in in_sight and "word 20" in in_sight and "word 19" not in in_sight
        assert "2 more with fewer than 20 test cases; newly wrong: word 19 14 of 19</summary>" in folded
        assert "word 19" in folded and "word 3" in folded
        assert not folded.split(">")[0].count("open"), "it is closed until somebody opens it"
    beside = str(comparison_part((found, found), (Place(version=1), Place(version=2))))
    in_sight, folded = beside[beside.index("by alternative") :].split("<details", 1)
    assert "word 20" in in_sight and "word 19" not in in_sight and "2 more with fewer than 20 test cases" in folded
    few = replace(found, edits={"alternative": rows[2:]})
    alone = str(comparison_part((few, few), (Place(version=1), Place(version=2)))).split("by alternative")[1]
    assert "No row has 20 test cases" in alone.split("<details")[0], "what is empty says why"


def test_small_sets_show_how_many_test_cases_are_wrong_in_place_of_figures(made_once: MadeOnce, tmp_path: Path) -> None:
    """No class of the 40 images has 20, but a user still looks for the weak spots."""
    with workspace_in(scenes_that_are_read(made_once, tmp_path)) as workspace:
        service = service_of(workspace)
        found = service.evaluate(BIRDS)
        service.close()
    held, one = found.effectiveness, found.edits["alternative"][0]
    assert held is not None
    change = replace(one.row.change, value=None, why="fewer than 20 test cases")
    row = replace(one.row, n=12, newly_wrong=None, newly_wrong_cases=7, change=change)
    edits: dict[EditTable, tuple[EditRow, ...]] = {
        "alternative": (replace(one, row=replace(row, n=9)),),
        "edit type": (replace(one, row=row),),
    }
    bird = replace(held.classes[0], sources=4, cases=8, wrong_originals=1, wrong_cases=5, difference=change)
    found = replace(found, edits=edits, effectiveness=replace(held, classes=(bird,)))
    page = str(result_part(found, Links()))
    first, classes = (page[page.index(f'id="{name}"') :].split("</section>")[0] for name in ("edits", "classes"))
    assert first.index("7 of 9") > first.index("hidden") > first.index("data-table"), "the larger table is in sight"
    for part, told in ((first, "7 of 12"), (classes, "1 of 4"), (classes, "5 of 8")):
        assert "Each of these rows has fewer than 20 test cases, so a difference may be chance." in part
        assert told in part and "<details" not in part


def test_cases_of_one_source_fail_together_only_where_they_do(made_once: MadeOnce, tmp_path: Path) -> None:
    with workspace_in(scenes_that_are_read(made_once, tmp_path)) as workspace:
        service = service_of(workspace)
        found = service.evaluate(BIRDS)
        service.close()
    assert found.effectiveness is not None
    for effect, words in ((1.0, "fail like any others: design effect 1.0"), (1.6, "fail together: design effect 1.6")):
        clustering = replace(found.effectiveness.clustering, design_effect=effect, effective=140 / effect)
        held = replace(found, effectiveness=replace(found.effectiveness, clustering=clustering))
        assert f"cases of one source {words}" in str(result_part(held, Links()))


def test_the_list_offers_the_whole_gallery_kind_by_kind_where_there_are_images(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        service = service_of(workspace)
        nothing = str(subjects_part(service.subjects(), service.gallery(), None))
        assert "Nothing to evaluate yet" in nothing and "data-kind" not in nothing
        fill(workspace, 2)
        assert service.gallery() == {"classification": 22}
        fill(workspace, 1, road=True)
        shown = str(subjects_part(service.subjects(), service.gallery(), None))
        for kind, images in (("classification", 22), ("segmentation", 11)):
            assert f'href="/evaluate/?filter=kind%3D{kind}"' in shown and f"{images} generated images" in shown
            view = service.view(OnModel.of({"filter": f"kind={kind}"}).subject)
            assert (view.kind, view.cases + view.controls) == (kind, images)
        assert "Nothing to evaluate" not in shown
        service.close()


def test_the_title_of_a_set_with_several_splits_opens_it_too() -> None:
    problem = "Its sources are of several splits, which are never mixed: train 8, test 2. Choose one of them."
    view = SubjectView(Subject(7), "Birds@1", "classification", 10, 20, 0, ("train", "test"), problem)
    shown = subjects_part([view], {}, None)
    assert f'<b><a href="{evaluate_address(version=7)}">Birds@1</a></b>' in shown
    assert 'class="card subject-line"' in shown
