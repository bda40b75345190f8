"""The policy files below a directory: where every command and the language server look for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator


def policy_files(directory: str, unreadable: Callable[[OSError], object] | None = None) -> Iterator[str]:
    """Paths that begin with ``directory``, in an order that does not depend on the disk.

    What is hidden and what npm has installed is not looked into. ``unreadable`` hears of folders that cannot be read.
    """
    for folder, folders, names in os.walk(directory, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".policy"))
