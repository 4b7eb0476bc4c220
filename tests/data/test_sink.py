"""The sink's task against a client that refuses."""

from pathlib import Path
from typing import Any

import pytest

from data.options import sink_options
from data.sink import SinkTask
from quorate import RefusedError


def test_a_writer_without_the_right_fails_its_task_and_sets_no_row_aside(tmp_path: Path) -> None:
    class Refusing:
        """A node that does not allow it."""

        asked = 0

        def request(self, action: int, **fields: Any) -> dict[str, Any]:
            self.asked += 1
            raise RefusedError("not_allowed", "the right produce is missing", {})

    client: Any = Refusing()
    options = sink_options({"bootstrap.servers": "a:1", "queue": "q", "refused": str(tmp_path / "refused")})
    task = SinkTask(options, client)
    with pytest.raises(RefusedError, match="not_allowed"):
        task._produce("q", [{"data": 1}, {"data": 2}], 1e12)
    assert client.asked == 1
    assert not (tmp_path / "refused").exists()
