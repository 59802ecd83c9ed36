"""Captioners that follow an instruction: chat models that see pictures, of transformers or on a server."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from functools import cached_property
from string import Template
from typing import TYPE_CHECKING, Any

from PIL import Image

from core.errors import CannotLoad, UserError
from core.progress import stop_if, stop_signal
from core.settings import CaptionSettings, LanguageSettings
from core.types import Task
from pipeline.models.captioner import CaptioningModel, warpers_of
from pipeline.models.language_forms import Forms, allowed_tokens, forms_of
from pipeline.models.server import ChatServer, side_by_side
from pipeline.profiles.text_sections import ChatCaptioner, ServerCaptioner
from pipeline.seams import CaptionRequest, LanguageRequest

if TYPE_CHECKING:
    import torch

SHORTEST_SIDE = 32
"""Minimum side of a picture in pixels. Models cut pictures into patches, and refuse a picture smaller than a patch."""
LARGEST_ASPECT = 100
"""Maximum ratio of the long to the short side of a picture. Some processors refuse longer pictures."""


class ChatVisionModel(CaptioningModel):
    """An image-text-to-text model of transformers, prompted in its chat template."""

    continues = True

    def __init__(self, section: ChatCaptioner) -> None:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        super().__init__(section, AutoProcessor, AutoModelForImageTextToText, chats=True)
        self._section = section
        self.tokens = 0
        """Number of tokens that `complete` has read and written so far."""
        template = getattr(self._processor, "chat_template", None)
        if not template:
            raise CannotLoad(
                f"The captioner {self.name} has no chat template, so it cannot be a captioner of the kind “chat”: take "
                "a model that was trained to chat, often called Instruct."
            )
        if not self._shows_pictures():
            raise CannotLoad(
                f"The chat template of the captioner {self.name} has no place for a picture, so captions would not "
                "depend on it: name another revision or another model in the profile."
            )
        # A template that does not know this option would pass it on to the picture's processor.
        self._words = {"enable_thinking": section.thinking} if "enable_thinking" in str(template) else {}

    def _say_all(self, requests: Sequence[CaptionRequest], settings: CaptionSettings) -> list[tuple[str, str]]:
        prompts = [Template(self._section.prompt).substitute(task=one.task.describe()) for one in requests]
        encoded = self.encode([one.image for one in requests], prompts)
        drawn = self._drawn([one.seed for one in requests], settings)
        replies = self._generate(encoded, settings.max_new_tokens, requests[0].seed, drawn)
        return list(zip(replies, prompts, strict=True))

    def caption_many(
        self, requests: Sequence[CaptionRequest], settings: CaptionSettings
    ) -> Sequence[tuple[str, str] | UserError]:
        """See `BatchCaptioner.caption_many`. If the model refuses a picture, all requests run one by one."""

        def alone(one: CaptionRequest) -> tuple[str, str] | UserError:
            try:
                return self.caption(one.image, one.task, settings, one.seed)
            except UserError as error:
                return error

        try:
            return super().caption_many(requests, settings)
        except UserError:
            return [alone(one) for one in requests]

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        """Return the reply to a prompt about several pictures, as the profile's judge. The reply is constrained to the
        request's schema, if the tokenizer allows that and the model does not think first.
        """
        pictures = [{"type": "image", "image": fitting(one, self._section.max_pixels)} for one in request.pictures]
        encoded = self._encoded([beside_pictures(pictures, request.prompt)])
        forms = None if request.schema is None or self._section.thinking else self._forms

        def write(_part: Sequence[LanguageRequest], _first: int) -> list[str]:
            form = None if forms is None or request.schema is None else forms.start(request.schema)
            drawn = drawn_in_form(form, settings, request.seed, self._device)
            return self._generate(encoded, settings.max_new_tokens, request.seed, drawn)

        (reply,) = self._at_once.each([request], write, self.free_others)
        written = len(self._processor.tokenizer(reply, add_special_tokens=False).input_ids)
        self.tokens += encoded["input_ids"].shape[1] + written
        return reply

    @cached_property
    def _forms(self) -> Forms | None:
        ends = self._model.generation_config.eos_token_id
        return forms_of(self._processor.tokenizer, self._model, [ends] if isinstance(ends, int) else list(ends or ()))

    def _shows_pictures(self) -> bool:
        import jinja2

        text = {"type": "text", "text": "What is it?"}
        try:
            without = self._processor.apply_chat_template([{"role": "user", "content": [text]}])
        except jinja2.TemplateError:  # the template requires a picture
            return True
        seeing = self._processor.apply_chat_template([{"role": "user", "content": [{"type": "image"}, text]}])
        return bool(seeing != without)

    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return the model's inputs for each picture and instruction in the chat template, on the model's device,
        padded on the left to one length. Raises UserError for a picture that the model's processor does not take.
        """
        pictures = [{"type": "image", "image": fitting(image, self._section.max_pixels)} for image in images]
        return self._encoded([beside_pictures([one], text) for one, text in zip(pictures, prompts, strict=True)])

    def _encoded(self, contents: Sequence[list[dict[str, Any]]]) -> dict[str, torch.Tensor]:
        """Return the model's inputs, as in `encode`, for one chat message with each of the `contents`."""
        from huggingface_hub.errors import StrictDataclassError

        conversations = [[{"role": "user", "content": content}] for content in contents]
        options = dict(self._section.image_options)
        if len(conversations) > 1:
            options |= {"padding": True, "padding_side": "left"}
        try:
            encoded = self._processor.apply_chat_template(
                conversations,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
                processor_kwargs=options,
                **self._words,
            )
        except (ValueError, TypeError, StrictDataclassError) as error:
            raise UserError(
                f"The captioner {self.name} does not take this picture ({_first(error)}): use another picture, or "
                "correct prompt and image_options in the profile."
            ) from error
        return {
            name: value.to(self._device, self._dtype) if value.is_floating_point() else value.to(self._device)
            for name, value in encoded.items()
            if hasattr(value, "is_floating_point")
        }


def drawn_in_form(form: Any, settings: LanguageSettings, seed: int, device: str) -> dict[str, Any]:
    """Return options of `generate` for one reply. Its tokens are drawn by `seed` among those that `form` allows (an
    LLMatcher of llguidance, or None for all tokens).
    """
    import torch

    warpers = warpers_of(settings.temperature, 0, settings.top_p if settings.temperature else None, None)
    draws, begun = torch.Generator(device).manual_seed(seed), False

    def draw(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        nonlocal begun
        stop_if(stop_signal())
        if form is not None:
            if begun:
                form.consume_token(int(ids[0, -1]))
            allowed = torch.from_numpy(allowed_tokens(form, scores.shape[1])).to(scores.device)
            scores = scores.masked_fill(~allowed, -torch.inf)
        begun = True
        shares = warpers(ids, scores).softmax(-1)
        token = torch.multinomial(shares, 1, generator=draws) if settings.temperature else shares.argmax(-1, True)
        return torch.full_like(scores, -torch.inf).scatter_(1, token, 0.0)

    return {"do_sample": False, "num_beams": 1, "logits_processor": [draw]}


class ServedChatModel:
    """A captioner on an OpenAI-compatible server, to which the picture is sent."""

    def __init__(self, section: ServerCaptioner) -> None:
        self._section = section
        self.server = ChatServer(section, "captioner")
        self.name = f"{section.title} by a server"

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        """Return the reply, including thoughts, and the prompt. Ignores beams. Raises errors of `ChatServer.chat`."""
        prompt = Template(self._section.prompt).substitute(task=task.describe())
        picture = {"type": "image_url", "image_url": {"url": data_url(fitting(image, self._section.max_pixels))}}
        reply = self.server.chat(
            [{"role": "user", "content": beside_pictures([picture], prompt)}],
            longest=settings.max_new_tokens,
            temperature=settings.temperature,
            seed=seed,
        )
        return reply.text, prompt

    def caption_many(
        self, requests: Sequence[CaptionRequest], settings: CaptionSettings
    ) -> list[tuple[str, str] | UserError]:
        """See `BatchCaptioner.caption_many` and `side_by_side`. The profile sets the number of parallel requests."""
        return side_by_side(
            requests, lambda one: self.caption(one.image, one.task, settings, one.seed), self._section.parallel
        )


def beside_pictures(pictures: Sequence[dict[str, Any]], prompt: str) -> list[dict[str, Any]]:
    """Return the content of a chat message: pictures, then the prompt. Several pictures are numbered: Picture 1, ..."""
    numbered = [
        part
        for number, picture in enumerate(pictures, 1)
        for part in (*([{"type": "text", "text": f"Picture {number}:"}] if len(pictures) > 1 else []), picture)
    ]
    return [*numbered, {"type": "text", "text": prompt}]


def _first(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def fitting(image: Image.Image, max_pixels: int) -> Image.Image:
    """Return the picture, scaled down to at most `max_pixels`. A side that is too short for models is stretched."""
    width, height = image.size
    scale = min(1.0, math.sqrt(max_pixels / (width * height)))
    width, height = max(1, int(width * scale)), max(1, int(height * scale))
    longest = max(width, height)
    shortest = max(SHORTEST_SIDE, math.ceil(longest / LARGEST_ASPECT))
    size = max(width, shortest), max(height, shortest)
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def data_url(image: Image.Image) -> str:
    """Return the picture as a data URL with a lossless PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
