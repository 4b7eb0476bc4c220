"""What is served as it was released, and nothing from anywhere else."""

import hashlib
import re
from pathlib import Path

HERE = Path(__file__).parents[2] / "console"
RELEASED = {  # uPlot 1.6.32, MIT
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def test_uplot_is_what_was_released() -> None:
    for name, wanted in RELEASED.items():
        assert hashlib.sha256((HERE / "static" / name).read_bytes()).hexdigest() == wanted, name


def test_pages_have_no_inline_script_or_style_and_ask_nobody_else() -> None:
    for path in (HERE / "templates").iterdir():
        text = path.read_text()
        assert not re.search(r"\son[a-z]+=|style=|<style|javascript:|https?://|\|\s*safe", text), path.name
        assert not re.search(r"<script(?![^>]*src=)", text), path.name
    own = (HERE / "static" / "console.js").read_text()
    assert len(own.splitlines()) <= 300
    assert "http" not in own
    assert "eval(" not in own
