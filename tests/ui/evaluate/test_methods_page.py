"""The page that compares methods: a table of all of them, whose numbers open their images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from pipeline.profiles.profile import load_profile
from services.evaluation.service import model_choice_key
from services.studio import Studio
from storage.workspace import Workspace
from tests.support.evaluation_cases import read_all
from tests.support.made_once import MadeOnce
from tests.support.method_cases import colours, made_by_methods, question_on
from tests.support.scripted import ScriptedModels
from ui.evaluate.routes import add_evaluate_routes
from ui.evaluate.words import evaluate_address


@pytest.fixture
def asked(made_once: MadeOnce, tmp_path: Path) -> Iterator[tuple[TestClient, dict[str, str]]]:
    with Workspace(made_by_methods(made_once, tmp_path)) as workspace:
        studio = Studio(load_profile("demo"), ScriptedModels(), workspace)
        question = question_on(workspace, colours(tmp_path))
        read_all(studio.evaluations, question)
        app = FastAPI()
        add_evaluate_routes(app, studio)
        place = {"filter": question.subject.filter.address, "key": model_choice_key(question.model)}
        with TestClient(app, follow_redirects=False) as client:
            yield client, place
        studio.close()


def test_the_evaluation_leads_to_its_methods_and_each_number_opens_its_images(
    asked: tuple[TestClient, dict[str, str]],
) -> None:
    client, place = asked
    evaluation = client.get(evaluate_address(**place)).text
    (to,) = re.findall(r'href="([^"]*)">The methods that made these images', evaluation)
    page = client.get(unescape(to))
    assert page.status_code == 200
    for words in ("DILLEMA from noise", "DILLEMA from the inverted source", "AGA", "All edits", "Background"):
        assert words in page.text
    assert "valid failures per minute of model time" in page.text and "Annotators do not see the method." in page.text
    links = [unescape(one) for one in re.findall(r'href="([^"]*methods/images[^"]*)"', page.text)]
    assert len(links) > 15
    for link in links:
        reply = client.get(link)
        assert reply.status_code == 303 and reply.headers["location"].startswith("/curate/"), link
    other = client.get(evaluate_address("methods", **place, reference="aga")).text
    assert "<b>AGA</b>" in other
    (alone, *_) = re.findall(r'<th scope="col" class="n"><a href="([^"]*)"', page.text)
    assert client.get(unescape(alone)).status_code == 200


def test_images_of_one_method_have_no_comparison_and_the_page_says_so(
    asked: tuple[TestClient, dict[str, str]],
) -> None:
    client, place = asked
    only = {**place, "filter": "recipe=aga"}
    assert "The methods that made these images" not in client.get(evaluate_address(**only)).text
    page = client.get(evaluate_address("methods", **only))
    assert page.status_code == 404 and "made by one method, AGA" in page.text
