"""Which version this is: of the library, and of the server that was built with it."""

from typing import Final

VERSION: Final = "0.4.0"
