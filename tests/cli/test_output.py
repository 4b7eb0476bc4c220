"""Which node a command of qctl asks, and what it shows to it."""

import pytest
import typer
from typer.testing import CliRunner

from cli.output import asked_nodes, asking, console, credentials, shown_asked

app = typer.Typer()


@app.command()
@asking
def who() -> None:
    """Tell who would be asked."""
    shown = credentials()
    console.print(f"{asked_nodes()} {shown_asked()} {shown.token} {shown.has_tls}")


def ask(*words: str, **environment: str) -> str:
    clean = dict.fromkeys(("QUORATE_URL", "QUORATE_HOST", "QUORATE_PORT", "QUORATE_TOKEN", "QUORATE_TLS"), "")
    result = CliRunner().invoke(app, words, env=clean | environment)
    return result.output.strip()


@pytest.mark.parametrize(
    ("words", "environment", "asked"),
    [
        ((), {}, "127.0.0.1:1111"),
        (("--host", "a"), {}, "a:1111"),
        (("--port", "5"), {}, "127.0.0.1:5"),
        (("--host", "::1", "--port", "5"), {}, "[::1]:5"),
        (("--host", "a:7"), {}, "a:7"),
        ((), {"QUORATE_HOST": "b", "QUORATE_PORT": "6"}, "b:6"),
        (("--host", "a"), {"QUORATE_HOST": "b", "QUORATE_PORT": "6"}, "a:6"),
        (("--host", "a:7"), {"QUORATE_PORT": "6"}, "a:7"),
        (("--port", "5"), {"QUORATE_HOST": "b", "QUORATE_PORT": "6", "QUORATE_URL": "quorate://c"}, "b:5"),
        ((), {"QUORATE_URL": "quorate://c:8,d", "QUORATE_HOST": "b"}, "c:8, d:1111"),
        (("--host", "a"), {"QUORATE_URL": "quorate://c:8"}, "a:1111"),
        (("--host", "quorate://e:9"), {"QUORATE_URL": "quorate://c:8", "QUORATE_PORT": "6"}, "e:9"),
    ],
)
def test_options_go_before_the_environment_and_an_url_before_its_parts(
    words: tuple[str, ...], environment: dict[str, str], asked: str
) -> None:
    assert f" {asked} None False" in ask(*words, **environment)


def test_an_url_brings_what_is_shown_to_the_node() -> None:
    assert ask(QUORATE_URL="quorate://:secret@c?tls=1").endswith("c:1111 secret True")
    assert ask("--tls", QUORATE_TOKEN="other").endswith("127.0.0.1:1111 other True")


@pytest.mark.parametrize(
    ("words", "environment", "why"),
    [
        (("--port", "70000"), {}, "port is 70000: from 1 to 65535"),
        (("--host", "a:7", "--port", "5"), {}, "one of them has a port too many"),
        (("--host", "a"), {"QUORATE_PORT": "no"}, "QUORATE_PORT is 'no'"),
        ((), {"QUORATE_URL": "http://c"}, "an URL of Quorate begins with quorate://"),
        (("--token-file", "/no/such/file"), {}, "--token-file /no/such/file: No such file"),
    ],
)
def test_what_names_no_node_is_one_line(words: tuple[str, ...], environment: dict[str, str], why: str) -> None:
    said = ask(*words, **environment)
    assert why in said
    assert said.startswith("qctl: ")
    assert "\n" not in said
