"""Files read to be rewritten: a reader sees the old text or the new one, never a part of either.

Knows bytes and the disk, nothing of what is in them.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import NamedTuple

from policy_lang.source import Unreadable, contents

TRIES = 100
"""Names tried for the file beside it."""


class Stored(NamedTuple):
    """A file as it was read. ``name`` is what the user calls it, ``place`` where it really is."""

    name: str
    place: str
    data: bytes
    info: os.stat_result


class NotWritten(Exception):
    """Why a file was left as it was, in a sentence that names it."""


def load(name: str) -> Stored:
    """Read a file, through links. Raises ``Unreadable``."""
    place = os.path.realpath(name) if name else ""  # of nothing it would be the current directory
    info = check_regular(name, place)
    data = contents(place, name)
    return Stored(name, place, data, info or os.stat(place))


def check_regular(name: str, place: str) -> os.stat_result | None:
    """Refuse what could not be replaced, and might take for ever to read. Raises ``Unreadable``."""
    try:
        info = os.stat(place)
    except (OSError, ValueError):  # told when it is opened
        return None
    if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
        return info
    raise Unreadable("P401", f"`{name}` is not a regular file; `-` reads the standard input")


def replace(file: Stored, data: bytes) -> None:
    """Put ``data`` in the place of a file's contents, its mode kept. Raises ``NotWritten``."""
    if not os.path.lexists(file.place):
        raise NotWritten(f"`{file.name}` was removed by somebody else meanwhile")
    if not os.access(file.place, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise NotWritten(f"`{file.name}` cannot be written: it is read-only")
    aside = ""
    try:
        aside = _write_aside(file, data)
        if _version(os.stat(file.place)) != _version(file.info):
            raise NotWritten(f"`{file.name}` was changed by somebody else meanwhile, and left alone")
        os.replace(aside, file.place)
        aside = ""
    except OSError as problem:
        reason = (problem.strerror or "unknown reason").lower()
        raise NotWritten(f"`{file.name}` cannot be written beside itself and replaced: {reason}") from None
    finally:
        if aside:
            with suppress(OSError):
                os.unlink(aside)


def _version(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_ino, info.st_size, info.st_mtime_ns


def _write_aside(file: Stored, data: bytes) -> str:
    """Write a new file in the same directory, which makes replacing one step; gives its path."""
    handle, path = _new_file(os.path.dirname(file.place))
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            if hasattr(os, "fchown"):
                with suppress(OSError):  # not ours to give away: then it is ours, as after any other editor
                    os.fchown(handle, file.info.st_uid, file.info.st_gid)
            os.chmod(path, stat.S_IMODE(file.info.st_mode))
            os.fsync(handle)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    return path


def _new_file(folder: str) -> tuple[int, str]:
    for number in range(TRIES):
        path = os.path.join(folder, f".policy-{os.getpid()}-{number}")
        with suppress(FileExistsError):  # left by another that was killed
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600), path
    raise FileExistsError(17, "temporary files of earlier runs are in the way")
