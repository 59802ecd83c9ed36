"""Write and read texts inside a PNG file, as pure functions of its bytes: all other chunks stay the same. Texts that
are read are not trusted, and their size is limited before unpacking, as a few bytes can unpack to gigabytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator, Mapping

from core.errors import UserError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
XMP_KEYWORD = "XML:com.adobe.xmp"
"""The PNG keyword of an XMP packet. The packet is UTF-8 and never compressed."""
LARGEST_TEXT = 8_000_000
"""Maximum size in bytes of one unpacked text."""
_PACKED_FROM = 4096
"""Minimum size in bytes of a text to compress. Shorter texts stay uncompressed for simple programs."""
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_OF_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")


def with_texts(data: bytes, texts: Mapping[str, str]) -> bytes:
    """Return the PNG with a text for each keyword before its pixels. Old texts of these keywords are removed. Raises
    ValueError for an incomplete PNG, a keyword that PNG does not allow, and a text over `LARGEST_TEXT`.
    """
    return b"".join(parts_with_texts(data, texts))


def parts_with_texts(data: bytes | memoryview, texts: Mapping[str, str]) -> tuple[bytes | memoryview, ...]:
    """Return the PNG with these texts (as `with_texts`) as consecutive parts. Most are views of `data`, not copies."""
    whole = memoryview(data)
    new = b"".join(_chunk_of(keyword, text) for keyword, text in texts.items())
    parts: list[bytes | memoryview] = []
    begin, ended = 0, False
    for kind, body, start, end in _chunks(whole):
        if kind in _TEXTS and _keyword(body) in texts:
            parts.append(whole[begin:start])
            begin = end
        elif kind == b"IHDR":
            parts += [whole[begin:end], new]
            begin = end
        elif kind == b"IEND":
            parts.append(whole[begin:end])
            ended = True
    if not ended:
        raise ValueError("this is no complete PNG file")
    return tuple(parts)


def read_texts(data: bytes, keywords: Collection[str]) -> dict[str, str]:
    """Return the first text in the file for each of `keywords`; empty if the file is no PNG or has none. Raises
    UserError if a requested text is damaged or larger than `LARGEST_TEXT`. Other texts are not unpacked.
    """
    texts: dict[str, str] = {}
    for kind, body, start, end in _chunks(memoryview(data)):
        keyword = _keyword(body) if kind in _TEXTS else ""
        if keyword not in keywords or keyword in texts:
            continue
        if zlib.crc32(data[start + 4 : end - 4]) != struct.unpack_from(">I", data, end - 4)[0]:
            raise _damaged()
        texts[keyword] = _text(kind, bytes(body[len(keyword) + 1 :]))
    return texts


def bare(data: bytes) -> bytes | None:
    """Return the PNG with only the chunks of its pixels, without decoding it. None for an incomplete PNG."""
    kinds, parts = [], [SIGNATURE]
    for kind, _, start, end in _chunks(memoryview(data)):
        if kind in _OF_PIXELS:
            kinds.append(kind)
            parts.append(data[start:end])
    whole_one = kinds[:1] == [b"IHDR"] and kinds[-1:] == [b"IEND"] and b"IDAT" in kinds
    return b"".join(parts) if whole_one else None


def _chunks(data: memoryview) -> Iterator[tuple[bytes, memoryview, int, int]]:
    """Yield kind, body, start and end of each complete chunk, up to the chunk IEND."""
    if data[: len(SIGNATURE)] != SIGNATURE:
        return
    place = len(SIGNATURE)
    while place + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        end = place + 12 + length
        if end > len(data):
            return
        kind = bytes(data[place + 4 : place + 8])
        yield kind, data[place + 8 : end - 4], place, end
        if kind == b"IEND":
            return
        place = end


def _keyword(body: memoryview) -> str:
    return bytes(body[:80]).split(b"\0", 1)[0].decode("latin-1")


def _chunk_of(keyword: str, text: str) -> bytes:
    name = keyword.encode("latin-1")
    if not 1 <= len(name) <= 79 or b"\0" in name:
        raise ValueError(f"{keyword!r} is no keyword of a PNG text")
    text = text.replace("\0", "")  # many programs stop reading a text at a NUL
    raw = text.encode("utf-8", "replace")
    if len(raw) > LARGEST_TEXT:
        raise ValueError(f"the text {keyword!r} is too long for a PNG file: {len(raw)} bytes")
    packed = len(raw) >= _PACKED_FROM and keyword != XMP_KEYWORD
    try:
        simple = None if packed or keyword == XMP_KEYWORD else text.encode("latin-1")
    except UnicodeEncodeError:
        simple = None
    if simple is not None:  # the oldest kind of text, which every program reads
        return _chunk(b"tEXt", name + b"\0" + simple)
    head = name + (b"\0\1\0" if packed else b"\0\0\0") + b"\0\0"  # no language, no translated keyword
    return _chunk(b"iTXt", head + (zlib.compress(raw, 9) if packed else raw))


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _text(kind: bytes, body: bytes) -> str:
    if kind == b"tEXt":
        return _bounded(body).decode("latin-1")
    if kind == b"zTXt":
        return _unpacked(body[1:]).decode("latin-1")
    packed, rest = body[:1] == b"\1", body[2:].split(b"\0", 2)
    if len(rest) != 3:
        raise _damaged()
    try:
        return (_unpacked(rest[2]) if packed else _bounded(rest[2])).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged() from error


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, LARGEST_TEXT + 1)
    except zlib.error as error:
        raise _damaged() from error
    if len(text) <= LARGEST_TEXT and not unpacker.eof:
        raise _damaged()
    return _bounded(text)


def _bounded(text: bytes) -> bytes:
    if len(text) > LARGEST_TEXT:
        raise UserError(f"The text inside this file is larger than {LARGEST_TEXT // 1_000_000} MB: it is not read.")
    return text


def _damaged() -> UserError:
    return UserError("The text inside this file is damaged: take the file as it was first saved.")
