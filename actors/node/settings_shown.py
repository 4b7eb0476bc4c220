"""What clients that operate a node may see of its settings, and set until it starts again."""

from typing import Any, Final

from actors.node.config import NodeConfig, memory_bytes_max
from actors.node.options import BY_NAME, OPTIONS

CHANGEABLE: Final = ("max_memory_bytes", "max_connections", "idle_timeout_s", "log_level")
HIDDEN: Final = frozenset({"cluster_secret_file", "tls_key", "cluster_tls_key", "access_file"})
"""No secrets themselves, but where they are."""


def shown(config: NodeConfig) -> dict[str, Any]:
    """All options but where secrets lie, and so much memory as holds."""
    options = {option.name: config[option.name] for option in OPTIONS if option.name not in HIDDEN}
    return {**options, "max_memory_bytes": memory_bytes_max(config)}


def changed(name: str, text: str) -> Any:
    """Give the value that `text` sets an option to. Raises ValueError for one that can't be set, or not so."""
    if name not in CHANGEABLE:
        raise ValueError(f"key: {name!r} is none of {', '.join(CHANGEABLE)}")
    option = BY_NAME[name]
    value: Any = text if isinstance(option.default, str) else float(text) if "." in text else int(text)
    return option.checked(value)
