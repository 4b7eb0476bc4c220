"""qctl config: what holds, and where it comes from."""

from pathlib import Path
from typing import Annotated

import typer

from actors.node import config as configuration
from actors.node.options import OPTIONS
from cli.node import ConfigPath, DataDir, Settings, flags_of
from cli.output import AsJson, print_json, print_table, speaking

app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look at the configuration."""


@app.command()
@speaking
def show(
    config: ConfigPath = None,
    data_dir: DataDir = None,
    settings: Settings = None,
    as_json: AsJson = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say what each setting means.")] = False,
) -> None:
    """Print every setting, its value, and where that was set; name all faults if there are any."""
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


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
