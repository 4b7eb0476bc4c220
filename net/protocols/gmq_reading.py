"""What gmq's calls say that are not written as nearly all are: names in other letters, values of other kinds.

What is allowed is what Go's decoder and gmq take; what is not raises `RefusedError` with their words.
"""

import json
import re
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from net.protocols.gmq_shapes import WAYS, AnyCase, Job, JobAsItCame, LooseCall, Params
from net.protocols.json_shapes import Batch
from quorate.go_json import UnreadableError, kind_of, misfit, readable
from quorate.protocol import BATCH_MAX, ErrorWord

NAMES_BYTES: Final = 8192
"""A list of topics that is longer is looked at before anything of it is made."""

ORDERED_BYTES: Final = 64 << 10
"""In a call of at most so many bytes it is found which of several ways to write a member comes last."""

ANY_CASE_BYTES: Final = 512 << 10
"""In a call of at most so many bytes names match without regard to case."""

NULL: Final = b"null"
STRING: Final = "string"
MAP: Final = "map[string]string"
STRINGS: Final = "[]string"
PARAMS: Final = "[1]interface {}"

BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, UnreadableError)
_WHOLE: Final = re.compile(rb"-?[0-9]+")
_loose_call_in: Final = msgspec.json.Decoder(LooseCall).decode
_any_case_in: Final = msgspec.json.Decoder(AnyCase).decode
_params_in: Final = msgspec.json.Decoder(Params).decode
_job_in: Final = msgspec.json.Decoder(JobAsItCame).decode
text_in: Final = msgspec.json.Decoder(str).decode
_list_in: Final = msgspec.json.Decoder(list[Raw]).decode
_bounded_list: Final = msgspec.json.Decoder(Batch).decode


class RefusedError(Exception):
    """A call that gets an error, which says so."""


def members_of(data: bytes) -> tuple[str, Any, Any] | None:
    """Read method, params and id of a call, however they are written; None: it is no call."""
    try:
        data = readable(data)
        if len(data) > ANY_CASE_BYTES:
            loose: Any = _loose_call_in(data)
            return ("" if loose.method is UNSET else text_in(loose.method)), loose.params, loose.id
        found: Any = _any_case_in(data)
        chosen: list[Any] = []
        for ways in WAYS.values():
            there = [way for way in ways if getattr(found, way) is not UNSET]
            if len(there) > 1:
                if len(data) > ORDERED_BYTES:
                    return None
                there = [_last_of(data, there)]
            chosen.append(getattr(found, there[0]) if there else UNSET)
        method, params, own_id = chosen
        if method is UNSET:  # to Go it is empty then
            return "", params, own_id
        return text_in(method), params, own_id
    except BROKEN:
        return None


def _last_of(data: bytes, ways: list[str]) -> str:
    """Which of those members stands last in an object."""
    names: list[str] = []

    def noted(pairs: list[tuple[str, Any]]) -> None:
        names[:] = [name for name, _ in pairs if name in ways]  # the outermost object is the last that ends

    json.loads(data, object_pairs_hook=noted, parse_int=str, parse_float=str)
    return names[-1]


def first_of(params: bytes, wanted: str) -> bytes:
    """Say what is wrong with the first of a call's params, where it is not what is wanted, if that is its kind."""
    if params[:1] != b"[":
        raise RefusedError(misfit(kind_of(params), PARAMS))
    first = _params_in(params).first
    raw = NULL if first is UNSET else bytes(first)
    opening = {MAP: b"{", STRINGS: b"[", STRING: b'"'}[wanted]
    if raw != NULL and raw[:1] != opening:
        raise RefusedError(misfit(kind_of(raw), wanted))
    return raw


def job_of(params: bytes) -> Job:
    """Take a job whose values are not all strings, where that will do."""
    raw = first_of(params, MAP)
    job = Job()
    if raw == NULL:
        return job
    came: Any = _job_in(raw)
    for name in ("id", "topic", "body", "delay", "TTR"):
        value: Any = getattr(came, name)
        if value is UNSET:
            continue
        text = bytes(value)
        if text == NULL:
            continue
        kind = kind_of(text)
        if kind == "string":
            setattr(job, name, text_in(text))
        elif kind == "number" and name in ("delay", "TTR") and _WHOLE.fullmatch(text):
            setattr(job, name, text.decode())
        elif kind == "array" and name == "topic" and (only := _only_name(text)) is not None:
            job.topic = only
        else:
            raise RefusedError(misfit(kind, STRING))
    return job


def _only_name(text: bytes) -> str | None:
    """Take the name in a list of one; None: it is no such list."""
    if len(text) > NAMES_BYTES:
        return None
    names = _list_in(text)
    if len(names) != 1 or bytes(names[0])[:1] != b'"':
        return None
    return text_in(names[0])


def check_count(raw: bytes) -> None:
    try:
        _bounded_list(raw)
    except msgspec.ValidationError as error:
        raise RefusedError(f"{ErrorWord.FIELD}: more than {BATCH_MAX} topics") from error


def names_of(params: bytes) -> list[str]:
    """Names of which some are null, which is none."""
    raw = first_of(params, STRINGS)
    if raw == NULL:
        return []
    names: list[str] = []
    for value in _list_in(raw):
        text = bytes(value)
        if text == NULL:
            names.append("")
        elif text[:1] != b'"':
            raise RefusedError(misfit(kind_of(text), STRING))
        else:
            names.append(text_in(text))
    return names
