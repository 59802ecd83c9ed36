"""A LLaMA in a GGUF file, run by ctransformers in its own process (see `language_process`).

This module prevents three faults of the library. Two simultaneous calls kill the process. A prompt longer than the
context gives garbage. Its tokenize() writes past its buffer if a text has more tokens than letters.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import CannotLoad, UserError, out_of_memory
from core.settings import LanguageSettings
from pipeline.models.language_forms import Forms, allowed_tokens
from pipeline.models.weights import no_room, unreadable
from pipeline.profiles.text_sections import GgufLanguage
from pipeline.seams import LanguageRequest

CUDA_12 = (("cuda_runtime", "libcudart.so.12"), ("cublas", "libcublasLt.so.12"), ("cublas", "libcublas.so.12"))
"""Libraries that the GPU build needs, in loading order: each with its folder below the Python package `nvidia`, and its
file name. torch's own libraries cannot be used, since their version is later."""


class GgufModel:
    """A GGUF model that runs one call at a time."""

    def __init__(self, section: GgufLanguage, file: str, build: str | None) -> None:
        """`file` is the path of the weights, and `build` the library's build for this processor (`which_build`)."""
        from ctransformers import LLM, Config

        if section.gpu_layers and sys.platform == "linux":
            require_gpu(section.gpu_layers)
            open_cuda(section.gpu_layers)
        self._section = section
        self._lock = threading.Lock()
        config = Config(
            context_length=section.context_length,
            batch_size=section.batch_size,
            threads=section.threads,
            gpu_layers=section.gpu_layers,
        )
        try:
            self._llm: Any = LLM(file, "gguf", config=config, lib=build)
        except (OSError, ValueError, RuntimeError) as error:
            raise cannot_run(section, Path(file), error) from error

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        """Return the reply to a prompt in the profile's chat template. The reply ends at a stop text, an end token or
        the maximum length. Only a token that does not fit the schema is drawn again. Raises UserError if the prompt and
        the maximum length exceed the context.
        """
        text = Template(self._section.chat_template).substitute(prompt=request.prompt, system=self._section.system)
        stops = [s.encode() for s in (*self._section.stop, *request.stop) if s]
        schema, seed = request.schema, request.seed
        with self._lock:
            tokens = self._tokenize(text)
            require_room(len(tokens), settings, self._section.context_length)
            form = self._forms.start(schema) if schema is not None and self._section.hold_form else None
            reply = self._generate(tokens, settings, seed, stops, form)
        return reply.decode("utf-8", errors="replace").strip()

    def score(self, text: str) -> float:
        """See `ScoringLanguageModel.score`. Reads token by token, as the library gives only the last probabilities."""
        with self._lock:
            tokens, llm, total = self._tokenize(text)[: self._section.context_length], self._llm, 0.0
            read = llm.prepare_inputs_for_generation(tokens[:1], reset=True)
            for token in tokens[1:]:
                llm.eval(read)
                logits = self._logits().astype(np.float64)
                total += float(np.logaddexp.reduce(logits) - logits[token])
                read = [token]
            return total / max(1, len(tokens) - 1)

    def _tokenize(self, text: str) -> list[int]:
        return self._tokenize_bytes(text.replace("\0", " ").encode("utf-8", errors="replace"))

    def _tokenize_bytes(self, data: bytes) -> list[int]:
        buffer = (ctypes.c_int * (len(data) + 8))()  # at most one token for each byte, and a few for the start
        count = self._llm.ctransformers_llm_tokenize(data, True, buffer)
        return list(buffer[:count])

    @cached_property
    def _forms(self) -> Forms:
        llm = self._llm
        pieces = [llm.detokenize([token], decode=False) for token in range(llm.vocab_size)]

        def tokenize(text: bytes) -> list[int]:
            # The tokenizer puts a space before a text, but not after a line break.
            tokens = self._tokenize_bytes(b"\n" + text)
            starts = (i for i in range(len(tokens)) if b"".join(pieces[token] for token in tokens[i:]) == text)
            return tokens[next(starts, len(tokens)) :]

        return Forms.of_pieces(pieces, llm.eos_token_id, tokenize)

    def _generate(
        self, tokens: list[int], settings: LanguageSettings, seed: int, stops: Sequence[bytes], form: Any
    ) -> bytes:
        llm, section = self._llm, self._section
        # The library sets the seed again for every token, so a single seed would draw the same rank each time.
        draws = random.Random(seed)
        llm.eval(llm.prepare_inputs_for_generation(tokens, reset=True))
        reply = b""
        longest = max(map(len, stops), default=0)

        def draw() -> int:
            return int(
                llm.sample(
                    top_k=1 if settings.temperature == 0 else section.top_k,
                    top_p=settings.top_p,
                    temperature=settings.temperature or 1.0,
                    repetition_penalty=section.repetition_penalty,
                    seed=draws.getrandbits(31),
                )
            )

        for _ in range(settings.max_new_tokens):
            token = draw()
            if form is not None:
                fits = form.is_accepting() if llm.is_eos_token(token) else form.validate_tokens([token]) == 1
                if not fits:
                    logits = self._logits()
                    logits[~allowed_tokens(form, len(logits))] = -np.inf
                    token = draw()
            if llm.is_eos_token(token):
                break
            piece: bytes = llm.detokenize([token], decode=False)
            reply += piece
            tail = max(0, len(reply) - len(piece) - longest)
            ends = [at for s in stops if (at := reply.find(s, tail)) >= 0]
            if ends:
                return reply[: min(ends)]
            if form is not None:
                form.consume_token(token)
                if form.is_stopped():  # nothing may follow, or the library gave up and enforces nothing any more
                    break
            llm.eval([token])
        return reply

    def _logits(self) -> NDArray[np.float32]:
        """Return the logits of the next token, in the library's memory: changing them changes which token is drawn."""
        size = self._llm.ctransformers_llm_logits_size()
        return np.ctypeslib.as_array(self._llm.ctransformers_llm_logits_data(), (size,))


def require_room(tokens: int, settings: LanguageSettings, context: int) -> None:
    """Raise UserError if a prompt of `tokens` leaves no room for the longest reply."""
    if tokens + settings.max_new_tokens > context:
        raise UserError(
            f"The prompt is {tokens} tokens long and the reply may take {settings.max_new_tokens} more, but prompt and "
            f"reply may have at most {context} tokens: shorten the caption, or lower the setting “Longest reply”."
        )


def require_gpu(layers: int) -> None:
    """Raise CannotLoad if there is no driver of an NVIDIA GPU."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CannotLoad(
            f"The profile puts {layers} layers of the language model on a GPU, but this machine has no NVIDIA GPU, or "
            "no driver for it: set gpu_layers = 0 in the profile, or install the driver."
        ) from error


def open_cuda(layers: int) -> None:
    """Open the CUDA 12 libraries, so that ctransformers finds them. Raises CannotLoad if they are not installed."""
    nvidia = find_spec("nvidia")
    folders = list(nvidia.submodule_search_locations or ()) if nvidia is not None else []
    for package, name in CUDA_12:
        places = [Path(folder) / package / "lib" / name for folder in folders]
        library = next((str(place) for place in places if place.is_file()), name)  # by name, if only the system has it
        try:
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise CannotLoad(
                f"The profile puts {layers} layers of the language model on a GPU, for which ctransformers needs "
                f"{name} of CUDA 12, and it is not installed: run pip install -r requirements-gpu.txt in the studio's "
                "environment (nvidia-cuda-runtime-cu12 and nvidia-cublas-cu12, 0.6 GB), or set gpu_layers = 0 in the "
                "profile."
            ) from error


def cannot_run(section: GgufLanguage, file: Path, error: Exception | str) -> UserError:
    """Return the error for a file that ctransformers cannot load. It says what the file is and what can run it."""
    if isinstance(error, Exception) and out_of_memory(error):
        return no_room(f"the language model at {section.title}")
    family, tokenizer = _written_in(file)
    if not family:
        failure = error if isinstance(error, Exception) else RuntimeError(error)
        return unreadable("language model", section, failure)
    return CannotLoad(
        f"ctransformers cannot run the language model at {section.title} (architecture {family}, tokenizer "
        f"{tokenizer or 'unknown'}): it runs LLaMA 2 and similar models. If this file should be such a model, download "
        "it again. Otherwise serve it with llama-server or Ollama, and name that server in the profile."
    )


def _written_in(file: Path) -> tuple[str, str]:
    """Return the architecture and the tokenizer type that a GGUF file names, or "" for both if it is unreadable."""
    from gguf import GGUFReader

    try:
        fields = GGUFReader(file).fields
    except (OSError, ValueError, IndexError, KeyError):
        return "", ""
    names = (fields.get(key) for key in ("general.architecture", "tokenizer.ggml.model"))
    family, tokenizer = (str(field.contents()) if field is not None else "" for field in names)
    return family, tokenizer


def which_build(gpu_layers: int) -> str | None:
    """Return the library's build for this processor, such as "avx2", or None if the library must find out itself."""
    cpu_facts = Path("/proc/cpuinfo")
    if gpu_layers or not cpu_facts.is_file():
        return None
    flags = next((line for line in cpu_facts.read_text().splitlines() if line.startswith("flags")), "").split()
    return "avx2" if {"avx2", "fma", "f16c"} <= set(flags) else None
