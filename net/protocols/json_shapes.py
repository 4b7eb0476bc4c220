"""What the JSON session reads of an object beside the request in it. Apart, since mypyc compiles no such classes."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from quorate.protocol import BATCH_MAX, ProduceItem, Request, TransactionRequest


class Loose(msgspec.Struct):
    """What can be said of a request that is wrong elsewhere, so that its client recognises the reply; as it came."""

    action: Raw | UnsetType = UNSET
    queue: Raw | UnsetType = UNSET
    seq: Raw | UnsetType = UNSET


class UsualTransaction(msgspec.Struct):
    """What nearly all transactions have, and nothing else."""

    action: int
    operations: Raw | UnsetType = UNSET
    seq: int | float | Annotated[str, Meta(max_length=256)] | None = None
    patience: Annotated[float, Meta(ge=0, le=31_536_000)] | None = None


def as_it_came(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Make a Struct with the fields of `kind`, each as its text stands there; `UNSET` where it does not."""
    fields = [(name, Raw | UnsetType, UNSET) for name in kind.__struct_fields__]
    return msgspec.defstruct(f"{kind.__name__}AsItCame", fields)


def _list_of_at_most(count: int) -> type[msgspec.Struct]:
    """Make a list of so many values, of which nothing is decoded; a longer one is wrong as soon as that is seen."""
    fields = [(f"_{index}", Raw | UnsetType, UNSET) for index in range(count)]
    return msgspec.defstruct(f"AtMost{count}", fields, array_like=True, forbid_unknown_fields=True)


Batch = _list_of_at_most(BATCH_MAX)
"""A list in a request, as long as it may be; the decoder of a request would make all of a longer one first."""

RequestAsItCame = as_it_came(Request)
ItemAsItCame = as_it_came(ProduceItem)
TransactionAsItCame = as_it_came(TransactionRequest)
