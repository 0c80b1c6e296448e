"""The parts of a message's content: text, images, audio, files, refusals and citations.

Content that is text only stays a `str`. The OpenAI JSON form of parts is `part_to_wire` and `part_from_wire`; each provider
protocol of another kind turns the structs into its own.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.excerpts import excerpt_of


class _ContentPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="type"):
    @property
    def type(self) -> str:
        """`text`, `image`, `audio`, `file`, `refusal` or `citation`."""
        tag = self.__struct_config__.tag
        assert isinstance(tag, str)
        return tag


class TextPart(_ContentPart, frozen=True, tag="text"):
    """A piece of text."""

    text: str


class _Media(_ContentPart, frozen=True):
    """Something that is not text, at one of four places; `blob` and `upload` are read when a model is asked."""

    url: str | None = None
    """Where the provider fetches it."""
    data: bytes | None = None
    """The bytes themselves; the store keeps large ones outside the message and puts a `blob` in their place."""
    blob: str | None = None
    """SHA-256 of the bytes, which the store keeps once."""
    upload: str | None = None
    """Id of a file uploaded to the chat."""
    media_type: str | None = None
    """`image/png` …; None where only a URL is known."""
    name: str | None = None
    """File name, for people and for providers that show it to the model."""
    size: int | None = None
    """Bytes, where they are known."""
    stored: int | None = None
    """Of a `blob`: the number under which the thread's store has the bytes. It says nothing of them."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in described(self).items() if k != 'type')})"


class ImagePart(_Media, frozen=True, tag="image"):
    """A picture."""

    detail: str | None = None
    """OpenAI's `low`, `high` or `auto`."""


class AudioPart(_Media, frozen=True, tag="audio"):
    """Sound."""


class FilePart(_Media, frozen=True, tag="file"):
    """A document, a PDF as a rule."""


class RefusalPart(_ContentPart, frozen=True, tag="refusal"):
    """Why the model does not answer."""

    refusal: str


class CitationPart(_ContentPart, frozen=True, tag="citation"):
    """A source that the model names; it follows the text that it supports."""

    url: str | None = None
    title: str | None = None
    text: str | None = None
    """The passage that is cited."""
    start: int | None = None
    """Where the supported text begins in the message's text, in characters; `end` is behind it."""
    end: int | None = None
    source: str | None = None
    """The cited document where it has no URL: a file's name or id."""


Part = TextPart | ImagePart | AudioPart | FilePart | RefusalPart | CitationPart
MediaPart = ImagePart | AudioPart | FilePart
PART_TYPES = (TextPart, ImagePart, AudioPart, FilePart, RefusalPart, CitationPart)
MEDIA_TYPES = (ImagePart, AudioPart, FilePart)
LARGE_BYTES = 4096
"""Bytes of a part from which on a store keeps them outside the message."""

Content = str | tuple[Part, ...]
"""Of a message: text, or parts in their order."""

_PLACES = ("url", "data", "blob", "upload")
_TEXT = frozenset({"text", "name", "url", "blob", "upload", "media_type", "detail", "title", "source", "refusal"})


def text_of(content: Content) -> str:
    """The text of content: its texts and refusals, joined."""
    if type(content) is str:
        return content
    return "".join(
        part.text if type(part) is TextPart else part.refusal if type(part) is RefusalPart else ""
        for part in content
        if isinstance(part, PART_TYPES)
    )


def media_of(content: Content) -> tuple[MediaPart, ...]:
    """The images, sounds and files of content."""
    return () if type(content) is str else tuple(part for part in content if isinstance(part, MEDIA_TYPES))


def url_misfit(url: str | None) -> str | None:
    """Why a provider must not be sent this URL, or None: of another scheme it may name a file of the provider's machine or ours."""
    if url is None or url.lower().startswith(("https:", "http:", "data:")):
        return None
    return f"its URL is {excerpt_of(url, 160)}, and only https:, http: and data: URLs are sent"


def content_of(parts: Iterable[Part]) -> Content:
    """Parts as content: a `str` where all of them are texts."""
    found = tuple(parts)
    if all(type(part) is TextPart for part in found):
        return "".join(part.text for part in found if type(part) is TextPart)
    return found


def bytes_in(part: MediaPart) -> bytes | None:
    """The bytes that the part itself has, also in a `data:` URL; None where it has none."""
    if part.data is None and part.url is not None and is_data_url(part.url):
        try:
            found: bytes | None = _source(part.url).get("data")
        except ValueError:
            return None
        return found
    return part.data


_BEGINNINGS = (
    (b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"), (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"), (b"OggS", "audio/ogg"), (b"fLaC", "audio/flac"),
)  # fmt: skip
_TYPES = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "heic": "image/heic",
    "pdf": "application/pdf", "txt": "text/plain", "md": "text/markdown", "csv": "text/csv", "html": "text/html",
    "json": "application/json", "wav": "audio/wav", "mp3": "audio/mpeg", "ogg": "audio/ogg", "flac": "audio/flac",
    "m4a": "audio/mp4", "aac": "audio/aac", "mp4": "video/mp4",
}  # fmt: skip
"""Ours and not those of `mimetypes`, which reads files of the machine."""


def media_type_of(url: str | None, name: str | None = None, data: bytes | None = None) -> str | None:
    """The type that the first bytes show, else that of the ending of a name or a URL; None where neither says it."""
    if data is not None:
        if data[:4] == b"RIFF" and (kind := {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12])):
            return kind
        if kind := next((kind for begin, kind in _BEGINNINGS if data.startswith(begin)), None):
            return kind
    for text in (name, url if url is None or is_data_url(url) is False else None):
        last = (text or "").partition("?")[0].partition("#")[0].rpartition("/")[2]
        if kind := _TYPES.get(last.rpartition(".")[2].lower()):
            return kind
    return None


def part_misfit(part: Any) -> str | None:
    """The error in a part's fields, or None; see `graphflow.messages.misfit`."""
    if not isinstance(part, PART_TYPES):
        return f"{excerpt_of(part)} is not a content part"
    for name in part.__struct_fields__:
        value = getattr(part, name)
        wanted: type = str if name in _TEXT else bytes if name == "data" else int
        # `True` is an `int` to Python, and no size.
        if value is not None and (not isinstance(value, wanted) or value is True or value is False):
            return f"the {name} of {type(part).__name__} must be {_SAID[wanted]}, not {excerpt_of(value)}"
    if isinstance(part, TextPart | RefusalPart) and (part.text if type(part) is TextPart else part.refusal) is None:  # type: ignore[union-attr]
        return f"a {part.type} part has no {part.type}"
    if isinstance(part, MEDIA_TYPES) and all(getattr(part, name) is None for name in _PLACES):
        return f"a content part of type {part.type!r} needs one of {', '.join(_PLACES)}"
    return None


_SAID: dict[type, str] = {str: "text", bytes: "bytes", int: "a whole number"}


def described(part: Part | _Media) -> dict[str, Any]:
    """The part for records, logs and readers: everything but its bytes and where they are, only how many there are."""
    if isinstance(part, MEDIA_TYPES) and part.data is not None:
        part = msgspec.structs.replace(part, data=None, size=len(part.data))
    out: dict[str, Any] = msgspec.to_builtins(part)
    out.pop("stored", None)
    if isinstance(url := out.get("url"), str) and is_data_url(url):
        out["url"] = url[:160].partition(",")[0]
    return out


# --- the OpenAI form -----------------------------------------------------------------------------

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.ASCII | re.IGNORECASE)
_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def part_to_wire(part: Part) -> dict[str, Any] | None:
    """The part in the OpenAI form; None for what has none there (a citation).

    Bytes become a data URL. A part whose bytes are elsewhere (`blob`, `upload`) keeps its reference.
    """
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case RefusalPart():
            return {"type": "refusal", "refusal": part.refusal}
        case CitationPart():
            return None
        case ImagePart():
            image = {"url": _address(part, "image/png")}
            return {"type": "image_url", "image_url": image | ({"detail": part.detail} if part.detail else {})}
        case AudioPart() if part.data is not None:
            kind = (part.media_type or "audio/wav").rpartition("/")[2]
            form = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}.get(kind, kind)
            return {"type": "input_audio", "input_audio": {"data": base64_of(part.data), "format": form}}
        case AudioPart():
            return {"type": "input_audio", "input_audio": {"url": _address(part, "")}}
        case FilePart():
            file: dict[str, Any] = {"filename": part.name} if part.name else {}
            return {"type": "file", "file": file | {"file_data": _address(part, "application/octet-stream")}}


def _address(part: MediaPart, default: str) -> str:
    """A URL of the part: its own, or its bytes as a data URL."""
    if part.data is not None:
        return f"data:{part.media_type or default};base64,{base64_of(part.data)}"
    return part.url or (f"upload:{part.upload}" if part.upload else f"blob:{part.blob}")


def base64_of(data: bytes) -> str:
    """The bytes in base64."""
    return base64.b64encode(data).decode("ascii")


def content_from_wire(content: Any) -> Content:
    """Content from its OpenAI form (or ours): None is no text, a list of texts is joined.

    Raises:
        ValueError: for a part of an unknown type, or without what its type needs.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return content_of([part_from_wire(content)])
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return content_of([part_from_wire(part) for part in content if not _is_blank(part)])
    return str(content)


def _is_blank(data: Any) -> bool:
    """Whether it is an OpenAI part with nothing in it, which some clients send for "no image"."""
    if not isinstance(data, Mapping) or data.get("type") not in _NESTED or data.get(data["type"]) not in (None, {}, ""):
        return False
    # `file` is the type of our own form, too, which has its places side by side.
    return all(data.get(place) is None for place in (*_PLACES, "file_data", "file_url"))


_NESTED = frozenset({"image_url", "input_audio", "file"})


def part_from_wire(data: Any) -> Part:
    """A part from its OpenAI form, its form in the Responses API, or ours.

    Raises:
        ValueError: for an unknown type, and for a part without what its type needs.
    """
    if isinstance(data, PART_TYPES):
        return data
    if not isinstance(data, Mapping):
        return TextPart(text=str(data))
    part = _part_from_wire(data)
    if (wrong := part_misfit(part)) is not None:
        raise ValueError(wrong)
    return part


def _part_from_wire(data: Mapping[str, Any]) -> Part:
    kind = data.get("type")
    if kind in ("text", "input_text", "output_text") or (kind is None and "text" in data):
        text = data.get("text")
        return TextPart(text=text if isinstance(text, str) else "" if text is None else str(text))
    if kind in ("image_url", "input_image"):
        image = data.get("image_url")
        given = dict(image) if isinstance(image, Mapping) else {"url": image}
        return ImagePart(detail=given.get("detail") or data.get("detail"), **_source(given.get("url")))
    if kind == "input_audio":
        sound = data.get("input_audio")
        if not isinstance(sound, Mapping) or sound.get("data") is None:
            return AudioPart(**_source(sound.get("url") if isinstance(sound, Mapping) else None))
        form = sound.get("format")
        media = _AUDIO.get(form, f"audio/{form}") if isinstance(form, str) else None
        return AudioPart(data=_bytes(sound["data"]), media_type=media)
    if kind in ("file", "input_file") and ("file" in data or "file_data" in data):
        file = data["file"] if isinstance(data.get("file"), Mapping) else data
        name = {"name": file.get("filename")}
        return FilePart(**name, **_source(file.get("file_data") or file.get("file_url")))
    if kind == "refusal":
        return RefusalPart(refusal=data.get("refusal") or "")
    own = _OWN.get(kind) if isinstance(kind, str) else None
    if own is None:
        raise ValueError(
            f"a content part has type {kind!r}; types are {', '.join(sorted(_OWN))} and OpenAI's forms of them"
        )
    try:
        part: Part = msgspec.convert(dict(data), own)
        return part
    except msgspec.ValidationError as error:
        raise ValueError(f"a content part of type {kind!r} can't be read: {error}") from None


_OWN: dict[str, Any] = {str(kind.__struct_config__.tag): kind for kind in PART_TYPES}


def _source(address: Any) -> dict[str, Any]:
    """The fields of a media part for an address: `data:` URLs become bytes."""
    if not isinstance(address, str) or not address:
        return {}
    if address.startswith("upload:"):
        return {"upload": address[7:]}
    if address.startswith("blob:"):
        return {"blob": address[5:]}
    if not is_data_url(address):
        return {"url": address}
    data, media_type = data_of(address)
    return {"data": data, "media_type": media_type, "size": len(data)}


def is_data_url(url: str | None) -> bool:
    """Whether the bytes stand in the URL itself."""
    return url is not None and url[:5].lower() == "data:"


def data_of(url: str) -> tuple[bytes, str | None]:
    """The bytes of a data URL and their type.

    Raises:
        ValueError: it is not of the form `data:TYPE;base64,BYTES`.
    """
    found = _DATA_URL.match(url)
    if found is None or ";base64" not in found[2].lower():
        raise ValueError("a data URL of a content part must be data:TYPE;base64,BYTES")
    return _bytes(url[found.end() :]), found[1] or None


def _bytes(text: Any) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return base64.b64decode(text if isinstance(text, str) else "!", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the data of a content part is not base64") from None
