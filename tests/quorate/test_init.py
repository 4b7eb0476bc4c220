"""What `import quorate` brings: all that it says, and none of the client before somebody asks for it."""

import subprocess
import sys

import pytest

import quorate

WRONG = "Cleint"


def test_all_that_it_says_is_there() -> None:
    names: dict[str, object] = {}
    exec("from quorate import *", names)
    assert set(quorate.__all__) <= set(names)
    assert set(quorate.__all__) <= set(dir(quorate))
    assert names["Client"] is quorate.Client
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        getattr(quorate, WRONG)


def test_modules_are_found_without_being_imported_by_name() -> None:
    code = "import quorate; quorate.pool.Pool; quorate.client.Client; quorate.protocol.Request"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_server_does_not_read_the_client() -> None:
    code = "import sys, actors.node.worker, actors.node.supervisor; sys.exit('quorate.client' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
