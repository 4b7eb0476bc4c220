"""Log lines: one format for supervisor and worker, to standard error or to `log_prefix` with .log behind it."""

import logging
import os
from logging.handlers import WatchedFileHandler
from pathlib import Path

from actors.node.config import NodeConfig
from quorate.json_lines import JsonLines

LINE = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s[{}] %(message)s"
PROCESS = "%(process)d"


def set_up_logging(config: NodeConfig, shard: int | None = None) -> None:
    """Log as the configuration says. Several processes may write the same file: each line is one write.

    A line names its process, and of several shards the `shard` that it is of. With `log_format` json see
    `quorate.json_lines`.
    """
    handler: logging.Handler
    if config["log_prefix"]:
        path = Path(f"{config['log_prefix']}.log")
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = WatchedFileHandler(path, encoding="utf-8")
    else:
        handler = logging.StreamHandler()
    if config["log_format"] == "json":
        handler.setFormatter(JsonLines(**({} if shard is None else {"shard": shard})))
    else:
        who = PROCESS if shard is None or config["shards"] == 1 else f"{PROCESS}, shard {shard}"
        handler.setFormatter(logging.Formatter(LINE.format(who), "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("WARNING")
    logging.getLogger("asyncio").setLevel("ERROR")  # it warns of single connections, and whoever connects makes those
    logging.getLogger("quorate").setLevel(config["log_level"].upper())


def let_go_of_log() -> None:
    """Close the file that this process was forked with.

    Its parent may have lines that the disk has no space for: they are the parent's to write, and no reason to fail.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler) and handler.stream is not None:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, handler.stream.fileno())
            os.close(nothing)
            handler.close()
