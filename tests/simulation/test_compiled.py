"""Compiled and interpreted code are one program: the same seed gives the same trace."""

import os
import subprocess
import sys

import pytest

import quorate_compiled

SEEDS = 10
SEEDS_OF_SHARDS = 4


def traces(compiled: str, *arguments: object) -> list[str]:
    """Each seed's trace, by code that is compiled ("1") or not ("0")."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--traces", *map(str, arguments)],
        env={**os.environ, quorate_compiled.VARIABLE: compiled},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("trace ")]


@pytest.mark.slow(40)
@pytest.mark.skipif(quorate_compiled.running() != "compiled", reason="nothing is compiled here")
@pytest.mark.parametrize("arguments", [("--seeds", SEEDS), ("--seeds", SEEDS_OF_SHARDS, "--shards", 0)])
def test_one_seed_gives_one_trace_compiled_and_interpreted(arguments: tuple[object, ...]) -> None:
    compiled, interpreted = traces("1", *arguments), traces("0", *arguments)
    assert len(compiled) == arguments[1]
    assert compiled == interpreted


def test_a_traceback_names_file_and_line() -> None:
    code = "from storage.order import Order; Order().first"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "storage/order.py" in done.stderr
    assert 'raise IndexError("no key is there")' in done.stderr
