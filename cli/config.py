"""qctl config: what holds, and where it comes from."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from actors.node import config as configuration
from actors.node.options import OPTIONS
from cli.node import ConfigPath, DataDir, Settings, flags_of
from cli.output import AsJson, asking, client, print_json, print_table
from quorate.protocol import Action

app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look at the configuration."""


@app.command()
@asking
def show(
    config: ConfigPath = None,
    data_dir: DataDir = None,
    settings: Settings = None,
    as_json: AsJson = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say what each setting means.")] = False,
    node: Annotated[bool, typer.Option("--node", help="What the running node has; needs the right operate.")] = False,
) -> None:
    """Print every setting, its value, and where that was set; name all faults if there are any."""
    if node:
        with client() as connection:
            options = connection.request(Action.NODE_CONFIG)["options"]
        if as_json:
            print_json(options)
        else:
            print_table(["setting", "value"], [[name, _said(value)] for name, value in options.items()])
        return
    loaded = configuration.load(config, flags=flags_of(settings, data_dir=_text(data_dir)))
    if as_json:
        print_json(loaded.plain())
        return
    rows = []
    for option in OPTIONS:
        held = loaded.values[option.name]
        row = [option.name, str(held.value), held.source]
        rows.append([*row, "yes" if option.is_live else "no", option.bounds, option.meaning] if explain else row)
    print_table(["setting", "value", "from", *(["reload", "may be", "meaning"] if explain else [])], rows)


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
