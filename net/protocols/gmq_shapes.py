"""What gmq's clients send, as types. Apart, since mypyc compiles no such classes.

Names of a call match without regard to case, as Go's decoder matches them: `AnyCase` has a field for each way to write
one, so that a call of any size is read without making an object of each of its members.
"""

from itertools import product
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from net.protocols.json_shapes import as_it_came

NAMES: Final = ("method", "params", "id")


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """A call, as all known clients write it."""

    method: str
    params: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET


LooseCall: Final = as_it_came(Call)
"""A call that has more members, whatever they are."""


def _written(name: str) -> list[str]:
    return ["".join(letters) for letters in product(*({one, one.upper()} for one in name))]


WAYS: Final = {name: _written(name) for name in NAMES}
"""By the name of a member, all ways to write it."""

AnyCase: Final = msgspec.defstruct("AnyCase", [(way, Raw | UnsetType, UNSET) for name in NAMES for way in WAYS[name]])


class Job(msgspec.Struct):
    """What a Push says of a job, where all of it are strings. The other names of a job mean nothing there."""

    id: str | None = None
    topic: str | None = None
    body: str | None = None
    delay: str | None = None
    TTR: str | None = None


JobAsItCame: Final = as_it_came(Job)
"""The same, of any values."""


class Pushed(msgspec.Struct, array_like=True):
    """The params of a Push: of a list the first alone counts, and all others are passed over."""

    first: Job | None = None


class Popped(msgspec.Struct, array_like=True):
    """Those of a Pop."""

    first: list[str] | None = None


class Acknowledged(msgspec.Struct, array_like=True):
    """Those of an Ack."""

    first: str | None = None


class PushCall(msgspec.Struct, tag_field="method", tag="Service.Push", forbid_unknown_fields=True, gc=False):
    """A whole call that pushes a job of strings."""

    params: Pushed
    id: Raw | UnsetType = UNSET


class PopCall(msgspec.Struct, tag_field="method", tag="Service.Pop", forbid_unknown_fields=True, gc=False):
    """A whole call that asks for a job."""

    params: Popped
    id: Raw | UnsetType = UNSET


class AckCall(msgspec.Struct, tag_field="method", tag="Service.Ack", forbid_unknown_fields=True, gc=False):
    """A whole call that acknowledges one."""

    params: Acknowledged
    id: Raw | UnsetType = UNSET


UsualCall: TypeAlias = PushCall | PopCall | AckCall
"""Nearly every call: it is read at once, where `Call` is read in two steps."""


class Params(msgspec.Struct, array_like=True):
    """Those of any call."""

    first: Raw | UnsetType = UNSET
