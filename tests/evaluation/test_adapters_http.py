"""A model under test behind HTTP: the example of the docs, and servers that are slow, fail, or reply nonsense."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from core.errors import Cancelled, UserError
from core.model_identity import UNKNOWN_VERSION
from core.predictions import decode_map
from core.progress import stoppable
from evaluation.adapters import http as adapters_http
from evaluation.models import ModelUnderTest
from tests.support.model_cases import ModelServer, picture, serving, wanted

DOCS = Path(__file__).resolve().parents[2] / "docs" / "models-under-test.md"
CARD = {"name": "light", "version": "3", "kind": "classification", "classes": ["day", "night"]}
IMAGES = [Image.new("L", (40, 30), 12 * n).convert("RGB") for n in range(20)]


def seen(text: str) -> Image.Image:
    with Image.open(io.BytesIO(base64.b64decode(text))) as opened:
        return opened.convert("RGB")


def light(images: list[str]) -> tuple[int, Any, dict[str, str]]:
    """Classify images by brightness, as a server's reply: status, JSON and headers."""
    shares = [float(np.asarray(seen(image)).mean()) / 255 for image in images]
    return 200, {"predictions": [{"classes": {"day": share, "night": 1 - share}} for share in shares]}, {}


def as_png(numbers: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(numbers).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def bright(images: list[str]) -> tuple[int, Any, dict[str, str]]:
    """Segment the bright pixels of images at half the size, as a server's reply: status, JSON and headers."""
    maps = [np.asarray(seen(image).convert("L").reduce(2)) > 127 for image in images]
    return 200, {"predictions": [{"map": as_png(one.astype(np.uint8))} for one in maps]}, {}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setattr(adapters_http, "FIRST_WAIT", 0.0)
    with serving(ModelServer(card=lambda: (200, CARD, {}), answer=light)) as opened:
        yield opened


def ask(server: ModelServer, **given: str | float) -> ModelUnderTest:
    return ModelUnderTest(wanted("http", address=server.url, **given))


def test_the_server_of_the_docs_is_a_model_under_test(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "server.py").write_text(example, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "server.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        try:
            assert running.stdout is not None
            model = ModelUnderTest(wanted("http", address=running.stdout.readline().strip()))
            model.at_once = 8
            batches = list(model.predict_many(IMAGES))
        finally:
            running.kill()
    assert [len(batch.predictions) for batch in batches] == [8, 8, 4]
    rows = np.concatenate([batch.probabilities for batch in batches if batch.probabilities is not None])
    assert np.allclose(rows[:, 0], [12 * n / 255 for n in range(20)], atol=0.01) and np.allclose(rows.sum(1), 1)
    assert model.identity.weights == "light 1" and model.identity.classes == ("day", "night")


def test_many_images_go_in_a_few_requests_and_come_back_in_order(server: ModelServer) -> None:
    model = ask(server)
    (batch,) = model.predict_many(IMAGES)
    assert sorted(server.asked) == [4, 8, 8]
    assert batch.probabilities is not None and (np.diff(batch.probabilities[:, 0]) > 0).all()
    alone = model.predict(IMAGES[3])
    assert alone == batch.predictions[3] and alone.top[0].label == "night"


def test_a_segmenter_answers_with_maps(server: ModelServer) -> None:
    server.card, server.answer = lambda: (200, {**CARD, "kind": "segmentation"}, {}), bright
    image = Image.new("RGB", (60, 40))
    image.paste((255, 255, 255), (30, 0, 60, 40))
    (batch,) = ask(server).predict_many([image])
    (prediction,), doubts = batch.predictions, batch.doubts
    assert doubts == (), "of a map alone it is not known how unsure a model is"
    numbers = np.asarray(decode_map(prediction.class_map))
    assert prediction.classes == ("day", "night") and numbers.shape == (40, 60)
    assert not numbers[:, :30].any() and numbers[:, 30:].all()


def test_a_server_without_a_version_is_told_of(server: ModelServer) -> None:
    assert ask(server).identity.weights == "light 3" and not ask(server).identity.note
    server.card = lambda: (200, {"classes": ["day", "night"]}, {})
    silent = ask(server).identity
    assert silent.weights == UNKNOWN_VERSION and "does not say which version" in silent.note
    for status in (404, 405, 501):
        server.card = lambda status=status: (status, b"<html>no</html>", {})  # type: ignore[misc]
        assert ask(server, classes="day, night").identity.classes == ("day", "night")
    with pytest.raises(UserError, match="does not say its classes"):
        ask(server)
    assert silent.digest != ask(server, classes="night, day").identity.digest


@pytest.mark.parametrize(
    ("card", "given", "said"),
    [
        ({"classes": ["day", "dusk"]}, "day, night", "'dusk' is only in one list"),
        ({"classes": ["day", "day"]}, "", "each once"),
        ({"classes": [1, 2]}, "", "does not say its classes"),
        ({**CARD, "kind": "detection"}, "", "calls itself a model for 'detection'"),
        ({"kind": "segmentation", "classes": [str(n) for n in range(300)]}, "", "at most 255"),
        ({"classes": ["day"]}, "", "has 1 class, so its answer would be the same for every image"),
    ],
)
def test_what_a_server_says_of_itself_has_to_fit(server: ModelServer, card: Any, given: str, said: str) -> None:
    server.card = lambda: (200, card, {})
    with pytest.raises(UserError, match=said):
        ask(server, classes=given)


def one(**entry: Any) -> dict[str, Any]:
    return {"predictions": [entry]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<html>hello</html>", "answers with <html>hello</html>; expected was"),
        (b"", "answers with nothing; expected was"),
        (b"[" * 100_000, "expected was"),
        ({"predictions": []}, "0 predictions; expected was .* one entry for each of 1 images"),
        (one(), "an entry {}"),
        (one(classes={}), "expected was"),
        (one(classes={"dusk": 1.0}), "the class 'dusk', which is not among its 2 classes"),
        (one(classes={"day": "much"}), "\"much\" as the probability of 'day'"),
        (one(classes={"day": True}), "true as the probability"),
        (one(classes={"day": float("nan")}), "NaN as the probability"),
        (one(classes={"day": -0.1, "night": 1.1}), "-0.1 as the probability"),
        (one(classes={"day": 0.9, "night": 0.9}), "add up to 1.8"),
        (one(classes={"day": 0, "night": 0}), "add up to 0"),
        (one(classes={"day": 0.5}), "add up to 0.5 and not to 1 .all classes count."),
        (one(classes={"day": 0.9, "night": 0.05}), "add up to 0.95 and not to 1"),
        (one(classes={"day": 90, "night": 10}), "90 as the probability of 'day'"),
        (one(classes={"day": 1e400}), "Infinity as the probability"),
    ],
)
def test_nonsense_is_told_with_what_was_expected(server: ModelServer, answer: Any, said: str) -> None:
    model = ask(server)
    server.answer = lambda _: (200, answer, {})
    with pytest.raises(UserError, match=said):
        model.predict(IMAGES[0])
    assert server.asked == [1], "it would answer so again"


def test_probabilities_that_are_rounded_are_taken(server: ModelServer) -> None:
    model = ask(server)
    for said, first in (({"day": 0.33, "night": 0.66}, "night"), ({"day": 0.67, "night": 0.34}, "day")):
        server.answer = lambda _, said=said: (200, one(classes=said), {})  # type: ignore[misc]
        assert model.predict(IMAGES[0]).top[0].label == first


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"classes": {"day": 1}}, 'expected was {"predictions": .{"map"'),
        ({"map": "§"}, "a map that is no PNG"),
        ({"map": base64.b64encode(b"no picture").decode()}, "a map that is no PNG"),
        ({"map": as_png(np.full((30, 40), 2, np.uint8))}, "class number 2, where the last of its classes has 1"),
        ({"map": as_png(np.zeros((40, 30), np.uint8))}, "a map of 30 × 40 for an image of 40 × 30"),
        ({"map": as_png(np.zeros((30, 40, 3), np.uint8))}, "a picture of mode RGB"),
    ],
)
def test_maps_that_are_none_are_told(server: ModelServer, entry: Any, said: str) -> None:
    server.card = lambda: (200, {**CARD, "kind": "segmentation"}, {})
    model = ask(server)
    server.answer = lambda _: (200, one(**entry), {})
    with pytest.raises(UserError, match=said):
        model.predict(IMAGES[0])


def test_images_are_sent_to_no_other_address(server: ModelServer) -> None:
    with serving(ModelServer(card=lambda: (200, CARD, {}), answer=light)) as other:
        model = ask(server)
        server.answer = lambda _: (307, b"", {"Location": other.url})
        with pytest.raises(UserError, match=f"redirects to {other.url}. Images are sent only to the address"):
            model.predict(IMAGES[0])
        server.card = lambda: (302, b"", {"Location": other.url})
        with pytest.raises(UserError, match="redirects to"):
            ask(server)
        assert not other.asked


def test_a_fault_that_passes_is_tried_again_and_one_that_stays_is_told(server: ModelServer) -> None:
    model = ask(server)
    faults = [(503, b"busy", {}), (429, b"", {"Retry-After": "0"}), (500, b"", {})]
    server.answer = lambda images: faults.pop() if faults else light(images)
    assert model.predict(IMAGES[0]).top[0].label == "night" and len(server.asked) == 4
    server.asked.clear()
    server.answer = lambda _: (500, b"out of luck", {})
    with pytest.raises(UserError, match=r"failed \(500: out of luck\): look at its log"):
        model.predict(IMAGES[0])
    assert len(server.asked) == adapters_http.TRIES
    server.asked.clear()
    server.answer = lambda _: (503, b"", {"Retry-After": "3600"})
    with pytest.raises(UserError, match="failed"):
        model.predict(IMAGES[0])
    assert len(server.asked) == 1, "an hour is more patience than a person has"
    server.answer = lambda _: (403, b"who are you", {})
    with pytest.raises(UserError, match=r"failed \(403: who are you\)"):
        model.predict(IMAGES[0])


def test_what_was_answered_before_a_fault_is_kept(server: ModelServer) -> None:
    model = ask(server)

    def fails_later(images: list[str]) -> tuple[int, Any, dict[str, str]]:
        return light(images) if len(server.asked) <= 2 else (500, b"", {})

    server.answer = fails_later
    model.at_once = 4
    batches = model.predict_many(IMAGES)
    assert [len(next(batches).predictions), len(next(batches).predictions)] == [4, 4]
    with pytest.raises(UserError, match="failed"):
        next(batches)


def test_a_slow_server_is_told_of_and_nobody_waits_for_it(server: ModelServer) -> None:
    go, arrived = threading.Event(), threading.Event()

    def waits(images: list[str]) -> tuple[int, Any, dict[str, str]]:
        arrived.set()
        go.wait()
        return light(images)

    server.answer = waits
    try:
        model, stop = ask(server, timeout=3600), threading.Event()
        adapter: Any = model._adapter
        adapter._timeout = 0.2  # set after the model's description was read, which may take longer
        with pytest.raises(UserError, match=r"gave no whole answer within 0\.2 seconds"):
            model.predict(IMAGES[0])
        adapter._timeout = 3600
        arrived.clear()

        def cancel() -> None:
            arrived.wait()
            stop.set()

        threading.Thread(target=cancel, daemon=True).start()
        with stoppable(stop), pytest.raises(Cancelled):
            model.predict(IMAGES[0])
    finally:
        go.set()


def test_an_answer_without_an_end_is_cut_off(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ask(server)
    monkeypatch.setattr(adapters_http, "MOST_BYTES", 1 << 20)
    server.answer = lambda _: (200, b" " * (2 << 20), {})
    with pytest.raises(UserError, match="more than 1 MB"):
        model.predict(picture(0))


def test_a_server_that_is_not_there_is_told(server: ModelServer) -> None:
    with serving(ModelServer(card=lambda: (200, CARD, {}), answer=light)) as gone:
        address = gone.url
    with pytest.raises(UserError, match="cannot be reached"):
        ModelUnderTest(wanted("http", address=address))
    with pytest.raises(UserError, match="Give the address"):
        ModelUnderTest(wanted("http"))


def test_a_server_that_breaks_off_is_not_called_out_of_reach(server: ModelServer) -> None:
    def break_off(_: list[str]) -> tuple[int, Any, dict[str, str]]:
        raise ConnectionAbortedError

    model = ask(server)
    server.answer = break_off
    with pytest.raises(UserError, match=r"broke off or damaged its answer \(.+\): look at its log"):
        model.predict(picture(0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"address": "ftp://model"}, "begins with http"),
        ({"address": "http://"}, "begins with http"),
        ({"address": "http://[half"}, "begins with http"),
        ({"address": "https://me:secret@model"}, "leave name and password out"),
        ({"size": "large"}, "224, or width x height"),
        ({"mean": "0.5"}, "a number for each of three channels"),
        ({"std": "0.5, 0, 0.5"}, "a number for each of three channels"),
        ({"mean": "nan, nan, nan"}, "a number for each of three channels"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        wanted("http", **given)
