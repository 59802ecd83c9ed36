"""A server with a model that judges images as a test says, and profiles that ask it."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from typing import Any

from PIL import Image

from core.images import image_sha
from pipeline.profiles.profile import Profile, load_profile
from pipeline.profiles.text_sections import JudgeSettings, ServerJudge
from tests.support.misbehaving import Misbehaving, completion

USAGE = {"prompt_tokens": 800, "completion_tokens": 20, "total_tokens": 820}
FACTORS = {"call by this name": "label", "see this change": "edit", "lost in Picture 2": "rest", "broken?": "whole"}
"""Short names of the questions, by words that they have."""
GOOD = {"label": "yes", "edit": "yes", "rest": "no", "whole": "no"}
"""Answers with which an image passes."""
Answers = Callable[[str, list[str]], Any]
"""Function that answers a question, by its short name, about pictures, given by their hashes. A text or data becomes a
reply, a pair of status and message an error."""


def judge_section(peer: Misbehaving, **more: Any) -> ServerJudge:
    settings = JudgeSettings(attempts=2)
    return ServerJudge(
        **{"kind": "openai", "address": peer.address, "model": "a-model-that-sees", "tries": 1, "settings": settings}
        | more
    )


def profile_with_judge(peer: Misbehaving, **more: Any) -> Profile:
    """Return the demo profile with a judge on this server."""
    return load_profile("demo").model_copy(update={"judge": judge_section(peer, **more)})


def answers_with(peer: Misbehaving, answers: Answers) -> None:
    """Let the server answer each question about pictures in this way. It holds every reply to its schema."""

    def reply(request: dict[str, Any]) -> Any:
        content = request["messages"][-1]["content"]
        if isinstance(content, str):
            return completion('{"colour": "red", "empty": true}')
        text = content[-1]["text"]
        name = next(name for words, name in FACTORS.items() if words in text)
        made = answers(name, [seen(part["image_url"]["url"]) for part in content if part["type"] == "image_url"])
        if isinstance(made, tuple):
            return made[0], {}, {"error": {"message": made[1]}}
        return completion(made if isinstance(made, str) else json.dumps(made), usage=USAGE)

    peer.answers = [reply]


def says(answer: str, reason: str = "It looks so.") -> dict[str, str]:
    return {"reason": reason, "answer": answer}


def seen(url: str) -> str:
    """Return the hash of the pixels of a picture that was sent as a data URL."""
    head, _, data = url.partition(",")
    assert head == "data:image/png;base64"
    return image_sha(Image.open(io.BytesIO(base64.b64decode(data))))
