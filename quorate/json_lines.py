"""Log lines as JSON, one object a line: for what collects the logs of many processes."""

import json
import logging
import math
import time
from typing import Any, Final

PLAIN: Final = (str, int, float, bool, type(None))


def _is_plain(value: object) -> bool:
    return isinstance(value, PLAIN) and not (isinstance(value, float) and not math.isfinite(value))


class JsonLines(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `process`, what `more` says, `message`, and its fields.

    `event` is the message without its values, by which lines of the same kind are found; `values` are these, in their
    order. `exception`: a traceback.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self._more = more

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in it."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            **self._more,
            "message": record.getMessage(),
            "event": str(record.msg),
        }
        if record.args:
            values = record.args if isinstance(record.args, tuple) else (record.args,)
            line["values"] = [value if _is_plain(value) else str(value) for value in values]
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
