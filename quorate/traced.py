"""Where spans come from, without reading OpenTelemetry for those who trace nothing."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from quorate.tracing import Tracing as _Tracing

    Tracing: TypeAlias = _Tracing
else:
    Tracing = object


def tracing_of() -> Tracing:
    """Make what traces. Raises ImportError, which says what is missing."""
    try:
        from quorate.tracing import Tracing as Found
    except ImportError as error:
        raise ImportError(f"tracing wants OpenTelemetry: pip install 'quorate-client[otel]' ({error})") from error
    return Found()
