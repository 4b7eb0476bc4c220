"""What can be wrong with a request's fields beyond their types, for clients and nodes."""

from quorate.protocol import HEADER_BYTES_MAX


def host_fault(host: str) -> str | None:
    """Say what is wrong with the name or address of a host; None if it could be looked up."""
    try:
        encoded = host.encode("idna")
    except UnicodeError as error:
        return f"is no host's name: {error}"
    return None if encoded.isascii() and encoded.decode().isprintable() and " " not in host else "is no host's name"


def headers_fault(headers: dict[str, str]) -> str | None:
    """Say what is wrong with a message's headers; None if it may have them."""
    size = 0
    for name, text in headers.items():
        if not name:
            return "has an empty name"
        size += len(name.encode()) + len(text.encode())
    return f"has {size} bytes, and {HEADER_BYTES_MAX} are allowed" if size > HEADER_BYTES_MAX else None
