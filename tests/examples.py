"""How many examples hypothesis tries."""

import os

IS_SECOND_LOOK = "SECOND_LOOK" in os.environ
"""Whether the same tests try the same source compiled (`make test-interpreted`)."""


def examples(count: int) -> int:
    """So many, or a tenth of them, but twenty at least, where it is the second look."""
    return max(count // 10, 20) if IS_SECOND_LOOK else count
