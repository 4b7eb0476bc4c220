"""Texts that can be stored, of whatever Python holds in an exception, a name or a header.

Python makes halves of surrogate pairs of file names that are no UTF-8; UTF-8, and so the wire, has no bytes for them.
"""

import logging
from traceback import format_exception
from typing import Final

UNSAID: Final = "what it says can't be made a text"


def storable(text: str) -> str:
    r"""Write what UTF-8 can't say as an escape (`\udce9`); all other texts are as they were."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def text_of(what: object) -> str:
    """Make a text of anything, also of an exception whose `__str__` raises."""
    try:
        return str(what)
    except BaseException as error:  # whatever it is, it says nothing of who asked
        return f"({UNSAID}: {type(error).__name__})"


def said_by(error: BaseException) -> str:
    """Name an exception and give its text, for a log or a reason."""
    return f"{type(error).__name__}: {text_of(error)}"


def log_error(log: logging.Logger, error: BaseException, text: str, *words: object) -> None:
    """Log what somebody's exception did, with its traceback where that can be printed: else logging itself raises."""
    try:
        log.error(text, *words, exc_info=error)
    except Exception:
        log.error(f"{text}: %s", *words, said_by(error))


def traceback_of(error: BaseException) -> str:
    """Give an exception's traceback; of one that can't be printed, what it says."""
    try:
        return "".join(format_exception(error))
    except BaseException:
        return said_by(error)
