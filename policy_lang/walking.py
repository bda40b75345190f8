"""The policy files below a directory: where every command and the language server look for them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator


def policy_files(directory: str, unreadable: Callable[[OSError], object] | None = None) -> Iterator[str]:
    """Paths that begin with ``directory``, in an order that does not depend on the disk.

    What is hidden and what npm has installed is not looked into, and pipes are left out: reading one may wait for ever.
    ``unreadable`` hears of folders that cannot be read.
    """
    for folder, folders, names in os.walk(directory, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        paths = (os.path.join(folder, name) for name in sorted(names) if name.endswith(".policy"))
        yield from (path for path in paths if not _is_pipe(path))


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:  # a link to nowhere is told by whoever reads it
        return False
