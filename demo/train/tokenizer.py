"""Builds the tokenizers of the embedded models from the drawn world's own words.

Every word of the world's captions, and a few hundred common ones, is one token. Anything else becomes shorter pieces
and at last single bytes, so that any text can be encoded. Nothing is learned from data: word lists determine the
vocabulary.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import Counter
from pathlib import Path

from transformers import BertTokenizer, CLIPTokenizer

from demo import language
from demo.scene import (
    BACKGROUNDS,
    COLOURS,
    GROUNDS,
    HILLS,
    MAX_PEDESTRIANS,
    MAX_VEHICLES,
    OBJECT_CLASSES,
    PROTECTED_ROAD_CLASSES,
    SEMANTIC_CLASSES,
    TIMES,
    TREES,
    WALLS,
    WATERS,
    WEATHERS,
    Look,
    Scene,
)

START, END = "<|startoftext|>", "<|endoftext|>"
MAX_TOKENS = 77

_COMMON = """
a an the this that these those and or but with without of in on at by to from for into over under near far behind
between above below beside next left right front back is are was were be been has have had do does it its they them
there here one two three four five six seven eight nine ten no not many some few several all each other another
man woman boy girl child person people crowd dog cat horse cow sheep bear zebra elephant fish duck owl robin
car cars truck bus van taxi bicycle bike motorcycle train tram plane boat ship street road highway lane bridge
crossing sidewalk pavement sign light lamp window door roof wall fence tower church castle barn city town village
tree trees forest bush grass leaf leaves field meadow garden park mountain hill valley river lake sea ocean beach
sand rock stone water sky cloud clouds sun moon star stars rain snow ice fog mist storm wind puddle puddles
black grey gray brown pink gold silver dark bright pale light deep colourful colorful blue red green yellow orange
purple white spring summer autumn winter morning noon afternoon evening dusk dawn midnight daytime nighttime
sitting standing walking running flying floating drifting growing driving parked waiting playing looking open closed
big small large little tall short wide old new young wet dry cold warm hot calm rough empty full clear overcast
photo picture image painting drawing view scene street photograph style realistic high quality sharp detailed
table chair book ball flag umbrella kite balloon butterfly mushroom flower house lighthouse bird weather
"""
COMMON_WORDS = tuple(_COMMON.split())


def world_words() -> list[str]:
    """Return a sorted list of the words in the demo's captions and in class names."""
    texts = [*OBJECT_CLASSES, *BACKGROUNDS, *SEMANTIC_CLASSES, *PROTECTED_ROAD_CLASSES]
    texts += [name for names in language.OTHER_NAMES.values() for name in names]
    for form in range(language.FORMS):
        texts += [language.caption(scene, language.Wording(form)) for scene in _scenes_with_every_word()]
    return sorted({word for text in texts for word in re.findall(r"[A-Za-z]+", text)})


def _scenes_with_every_word() -> list[Scene]:
    """Return object and road scenes. Their captions together use every word of the demo's captions except synonyms."""
    looks = itertools.zip_longest(WEATHERS, TIMES, COLOURS, GROUNDS, TREES, WALLS, WATERS, HILLS)
    firsts = (WEATHERS[0], TIMES[0], COLOURS[0], GROUNDS[0], TREES[0], WALLS[0], WATERS[0], HILLS[0])
    scenes = []
    for row in looks:
        weather, time, colour, *rest = (word or first for word, first in zip(row, firsts, strict=True))
        for air in (weather, "sunny"):  # captions of snowy scenes do not name the ground
            ground, trees, walls, water, hills = rest
            look = Look(air, time, (colour,), ground, trees, walls, water, hills)
            scenes += [Scene("object", 0, look, label=label) for label in OBJECT_CLASSES]
            for count, background in itertools.product(range(MAX_VEHICLES + 1), BACKGROUNDS):
                road = dataclasses.replace(look, colours=(colour,) * count)
                walkers = count % (MAX_PEDESTRIANS + 1)
                scenes.append(Scene("road", 0, road, "", count, walkers, background))
    return scenes


def clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """Write the tokenizer of the text encoders into `folder`, and return it. A missing folder is made.

    Like CLIP's own, it lower-cases, stops at `MAX_TOKENS` tokens and pads with the end token, whose id is the highest.
    """
    words = sorted({word.lower() for word in world_words()} | set(COMMON_WORDS))
    alphabet = sorted(_byte_letters().values())
    merges = _merges([word for word in words if len(word) > 1])
    pieces = [*alphabet, *(letter + "</w>" for letter in alphabet), *("".join(pair) for pair in merges)]
    vocabulary = {piece: i for i, piece in enumerate([*dict.fromkeys(pieces), START, END])}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    CLIPTokenizer(
        vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"), model_max_length=MAX_TOKENS
    ).save_pretrained(folder)
    return CLIPTokenizer.from_pretrained(folder)


def bert_tokenizer(folder: Path) -> BertTokenizer:
    """Write the captioner's tokenizer into `folder`, and return it. A missing folder is made.

    Unlike BERT's own tokenizer, this tokenizer keeps upper case. So decoding restores a caption of the demo exactly.
    Id 2 starts a text and id 3 ends the text.
    """
    letters = [chr(code) for code in range(33, 127)]
    words = sorted(set(world_words()) | set(COMMON_WORDS))
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*specials, *letters, *("##" + letter for letter in letters if letter.isalnum()), *words]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
    BertTokenizer(
        vocab=str(folder / "vocab.txt"),
        do_lower_case=False,
        clean_up_tokenization_spaces=True,
        model_max_length=MAX_TOKENS,
    ).save_pretrained(folder)
    return BertTokenizer.from_pretrained(folder)


def _merges(words: list[str]) -> list[tuple[str, str]]:
    """Return the byte-pair merges that make each word one piece: frequent pairs first, then by alphabet."""
    splits = [[*word[:-1], word[-1] + "</w>"] for word in words]
    merges: list[tuple[str, str]] = []
    while True:
        pairs = Counter(pair for pieces in splits for pair in itertools.pairwise(pieces))
        if not pairs:
            return merges
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        splits = [_merged(pieces, best) for pieces in splits]


def _merged(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """Return `pieces` with every neighbouring `pair` merged."""
    done: list[str] = []
    for piece in pieces:
        if done and (done[-1], piece) == pair:
            done[-1] += piece
        else:
            done.append(piece)
    return done


def _byte_letters() -> dict[int, str]:
    """Return the printable letter for each byte in a byte-level vocabulary (the GPT-2 table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + len(letters) - len(plain)))
    return letters
