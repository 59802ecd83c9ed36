"""The studio's replies under the name of an image."""

from __future__ import annotations

import hashlib

from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from services.pictures import StoredPictures
from services.studio import Studio
from ui.routes import add_routes


def test_under_the_name_of_an_image_come_its_bytes_or_a_sentence(studio: Studio) -> None:
    app, images = FastAPI(), studio.workspace.images
    add_routes(app, StoredPictures(studio.workspace), (), studio.exchange)
    client = TestClient(app)
    one, other = (images.add(Image.new("RGB", (8, 8), colour)) for colour in ("red", "blue"))
    reply = client.get(f"/images/{one}.png")
    assert (reply.status_code, hashlib.sha256(reply.content).hexdigest()) == (200, one)
    images.path(one).write_bytes(images.path(other).read_bytes())
    assert client.get(f"/images/{one}.png").status_code == 404
    assert "is damaged; restore it from a backup" in client.get(f"/images/{one}.png").text
    images.path(one).unlink()
    assert "is missing" in client.get(f"/images/{one}.png").text
