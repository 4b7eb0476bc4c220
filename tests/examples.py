"""How many examples hypothesis tries."""

import os

import quorate_compiled

IS_SECOND_LOOK = os.environ.get(quorate_compiled.VARIABLE) == "0"
"""Whether somebody wants the code interpreted: the same tests have tried it compiled, or will."""


def examples(count: int) -> int:
    """So many, or a tenth of them, but twenty at least, where it is the second look at the same source."""
    return max(count // 10, 20) if IS_SECOND_LOOK else count
