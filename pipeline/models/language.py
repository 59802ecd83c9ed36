"""A LLaMA in a GGUF file, run by ctransformers.

Two calls at once on one such model kill the process, a prompt over the context length gives garbage, and the library's
own tokenize() writes past its buffer when a text has more tokens than letters: all three are prevented here.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from string import Template
from typing import Any

from pipeline.errors import UserError
from pipeline.models.weights import locate, unreadable
from pipeline.profile import GgufLanguage
from pipeline.settings import LanguageSettings


class GgufModel:
    """One model, one call at a time."""

    def __init__(self, section: GgufLanguage) -> None:
        from ctransformers import LLM, Config

        file = locate("language model", section)
        self.name = f"{section.title}/{section.file}" if section.file else section.title
        self._section = section
        self._lock = threading.Lock()
        config = Config(
            context_length=section.context_length,
            batch_size=section.batch_size,
            threads=section.threads,
            gpu_layers=section.gpu_layers,
        )
        try:
            self._llm: Any = LLM(str(file), "gguf", config=config, lib=_build(section))
        except (OSError, ValueError, RuntimeError) as error:
            raise unreadable("language model", section, error) from error

    def complete(self, prompt: str, settings: LanguageSettings, seed: int, stop: Sequence[str] = ()) -> str:
        """The continuation of `prompt` in the profile's chat template, up to a stop, an end token or the longest reply.

        Raises UserError when the prompt and the longest reply together do not fit the context.
        """
        text = Template(self._section.chat_template).substitute(prompt=prompt, system=self._section.system)
        stops = [s.encode() for s in (*self._section.stop, *stop) if s]
        with self._lock:
            tokens = self._tokenize(text)
            room = self._section.context_length - len(tokens)
            if settings.max_new_tokens > room:
                raise UserError(
                    f"The prompt is {len(tokens)} tokens long and the reply may take {settings.max_new_tokens} more, "
                    f"but the language model reads {self._section.context_length} in all: "
                    "shorten the caption or the longest reply."
                )
            reply = self._generate(tokens, settings, seed, stops)
        return reply.decode("utf-8", errors="replace").strip()

    def count(self, text: str) -> int:
        """How many tokens a text has, the start token included."""
        with self._lock:
            return len(self._tokenize(text))

    def _tokenize(self, text: str) -> list[int]:
        from ctypes import c_int

        data = text.replace("\0", " ").encode("utf-8", errors="replace")
        buffer = (c_int * (len(data) + 8))()  # never more than one token a byte, and a few for the start
        count = self._llm.ctransformers_llm_tokenize(data, True, buffer)
        return list(buffer[:count])

    def _generate(self, tokens: list[int], settings: LanguageSettings, seed: int, stops: Sequence[bytes]) -> bytes:
        llm, section = self._llm, self._section
        # The library seeds anew for every token, so one seed for all would draw the same rank again and again.
        draws = random.Random(seed)
        llm.eval(llm.prepare_inputs_for_generation(tokens, reset=True))
        reply = b""
        longest = max(map(len, stops), default=0)
        for _ in range(settings.max_new_tokens):
            token = llm.sample(
                top_k=1 if settings.temperature == 0 else section.top_k,
                top_p=settings.top_p,
                temperature=settings.temperature or 1.0,
                repetition_penalty=section.repetition_penalty,
                seed=draws.getrandbits(31),
            )
            if llm.is_eos_token(token):
                break
            piece: bytes = llm.detokenize([token], decode=False)
            reply += piece
            tail = max(0, len(reply) - len(piece) - longest)
            found = [at for s in stops if (at := reply.find(s, tail)) >= 0]
            if found:
                return reply[: min(found)]
            llm.eval([token])
        return reply


def _build(section: GgufLanguage) -> str | None:
    """Which build of the library fits this processor; None where the library has to find out itself.

    It asks a package that looks at everything about the processor, in processes of its own: a second for one word.
    """
    import torch

    on_processor = section.gpu_layers == 0
    return "avx2" if on_processor and torch.backends.cpu.get_cpu_capability().startswith(("AVX2", "AVX512")) else None
