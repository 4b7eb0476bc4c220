"""Where the server's programs begin: qctl, and `python -m quorate_server supervisor|console ARGUMENT`.

The server's packages have short names (`storage`, `data`, `net`, ...), which a user's own may have as well. Whatever
stands in the current folder or on PYTHONPATH, ours come first here: this module's name is nobody else's, and the
folder that it was found in goes to the front before any of them is imported.
"""

import sys
from pathlib import Path


def _ours_first() -> None:
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [here, *(entry for entry in sys.path if entry != here)]
    import quorate_compiled

    try:
        quorate_compiled.choose()
    except ImportError as error:
        sys.exit(str(error))


def qctl() -> None:
    """Run qctl."""
    _ours_first()
    from cli.main import main

    main()


def run(program: str) -> None:
    """Run one of a node's processes; its argument follows on the command line."""
    _ours_first()
    sys.argv[:2] = [program]
    if program == "supervisor":
        from actors.node.supervisor import main
    elif program == "console":
        from console.server import main
    else:
        sys.exit(f"quorate_server: there is no program {program!r}")
    main()


if __name__ == "__main__":
    run(sys.argv[1] if len(sys.argv) > 1 else "")
