"""Constrains replies to a schema with llguidance, as JSON or lines. Computes which tokens may come next."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from core.latest import Latest
from pipeline.stages.reply_schema import grammar

log = logging.getLogger(__name__)

SPACES: Any = {"whitespace_pattern": r"[ \n]{0,8}"}
"""Limit on spaces between the parts of JSON: without one, a small model writes only spaces."""
KEPT = 32
"""Number of cached grammars. Compiling a grammar takes as long as a few tokens of a small model."""


class Forms:
    """Creates constraints (forms) of replies from schemas, for the vocabulary of one model. Not thread-safe."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is an LLTokenizer of llguidance."""
        self.tokenizer = tokenizer
        self._ready = Latest[Any](KEPT)

    @classmethod
    def of_pieces(cls, pieces: Sequence[bytes], end: int, tokenize: Callable[[bytes], list[int]]) -> Forms:
        """Create `Forms` for a vocabulary, given each token's bytes. Tokens without bytes are never allowed."""
        from llguidance import LLTokenizer, TokenizerWrapper

        # The library takes a token that begins with 0xff as a special one without text.
        tokens = [piece or b"\xff<%d>" % number for number, piece in enumerate(pieces)]

        class Vocabulary:
            eos_token_id = end
            bos_token_id = None
            special_token_ids = tuple(number for number, piece in enumerate(pieces) if not piece)

            def __call__(self, text: bytes) -> list[int]:
                return tokenize(text)

        vocabulary: Any = Vocabulary()
        vocabulary.tokens = tokens
        return cls(LLTokenizer(TokenizerWrapper(vocabulary)))

    def start(self, schema: Mapping[str, Any]) -> Any:
        """Return the constraint of a new reply (an LLMatcher), or None if the library cannot enforce the schema."""
        from llguidance import LLMatcher

        lines = grammar(schema)

        def compiled() -> LLMatcher:
            as_json = LLMatcher.grammar_from_json_schema
            plan = LLMatcher.grammar_from_lark(lines) if lines else as_json(dict(schema), SPACES)
            return LLMatcher(self.tokenizer, plan, log_level=0)

        matcher = self._ready.once(lines or json.dumps(schema, sort_keys=True), compiled)
        if matcher.is_error():
            log.warning("A reply is not constrained to its schema: %s", matcher.get_error())
            return None
        return matcher.deep_copy()


def forms_of(tokenizer: Any, model: Any, ends: list[int]) -> Forms | None:
    """Return `Forms` for a model of transformers with the end tokens `ends`, or None for a slow tokenizer."""
    from llguidance.hf import from_tokenizer
    from transformers import PreTrainedTokenizerFast

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    size = model.get_output_embeddings().weight.shape[0]
    return Forms(from_tokenizer(tokenizer, n_vocab=size, eos_token=ends))


def allowed_tokens(form: Any, size: int) -> np.ndarray:
    """Return a boolean mask (size,) of the tokens that may come next in a reply, including the end token."""
    bits = np.frombuffer(form.compute_bitmask(), np.uint8)
    mask = np.unpackbits(bits, bitorder="little")[:size].astype(bool)
    return np.pad(mask, (0, size - len(mask)))
