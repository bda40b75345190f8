"""What a user may not do, tested whoever runs the tests: nothing is forbidden to root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_NOBODY = 65534


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Act as a user without rights, if we are the one with all of them.

    What is imported meanwhile may be out of reach: import it before.
    """
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
