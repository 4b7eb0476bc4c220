"""Log lines: one format for supervisor and worker, to standard error or to `log_prefix` with .log behind it."""

import logging
from logging.handlers import WatchedFileHandler
from pathlib import Path

from actors.node.config import NodeConfig

LINE = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s[%(process)d] %(message)s"


def set_up_logging(config: NodeConfig) -> None:
    """Log as the configuration says. Several processes may write the same file: each line is one write."""
    handler: logging.Handler
    if config["log_prefix"]:
        path = Path(f"{config['log_prefix']}.log")
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = WatchedFileHandler(path, encoding="utf-8")
    else:
        handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LINE, "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("WARNING")
    logging.getLogger("quorate").setLevel(config["log_level"].upper())
