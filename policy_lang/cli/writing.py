"""Files that a command makes: whole or not at all, and never over another one unless somebody said so."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
"""What file systems say that know no links."""


class NotWritten(Exception):
    """Why there is no such file, in a sentence that names it."""


def write(path: str, text: str, *, over: bool = False) -> None:
    """Write a file of UTF-8 in one step. ``over``: in the place of one that is there. Raises ``NotWritten``."""
    place = os.path.realpath(path)  # through links: what they point at is what is written
    if os.path.isdir(place):
        raise NotWritten(f"`{path}` is a directory")
    if os.path.lexists(place) and not os.path.isfile(place):
        raise NotWritten(f"`{path}` is not a regular file")
    aside = ""
    try:
        aside = _aside(place, text)
        if over:
            os.replace(aside, place)
        else:
            _link(aside, place)
    except FileExistsError:
        raise NotWritten(f"`{path}` exists; `--force` writes over it") from None
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        reason = (getattr(problem, "strerror", None) or "not a valid path").lower()
        raise NotWritten(f"`{path}` cannot be written: {reason}") from None
    finally:
        if aside:
            with contextlib.suppress(OSError):
                os.unlink(aside)


def _link(aside: str, place: str) -> None:
    """Unlike a rename, a link fails if somebody was faster. Where there are none, the file is looked for before."""
    try:
        os.link(aside, place)
    except FileExistsError:
        raise
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        if os.path.lexists(place):
            raise FileExistsError(errno.EEXIST, "exists", place) from None
        os.replace(aside, place)


def _aside(place: str, text: str) -> str:
    """A new file beside it, with the mode that any new file would have, or that of the one it replaces."""
    handle, path = tempfile.mkstemp(prefix=".policy-", dir=os.path.dirname(place))
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(handle)
        os.chmod(path, _mode(place))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    return path


def _mode(place: str) -> int:
    if os.path.exists(place):
        return os.stat(place).st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
