"""A file is replaced as a whole or not at all, and stays the file it was."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from privileges import nobody

from policy_lang import stored
from policy_lang.source import Unreadable
from policy_lang.stored import NotWritten, load, replace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "a.policy"
    place.write_bytes(b"old")
    return place


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o755])
def test_the_mode_is_kept(path: Path, mode: int) -> None:
    path.chmod(mode)
    replace(load(str(path)), b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert os.listdir(path.parent) == ["a.policy"]


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    link = folder / "link.policy"
    link.symlink_to("../a.policy")
    replace(load(str(link)), b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert os.listdir(folder) == ["link.policy"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that anybody can get to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.policy").write_bytes(b"old")
        yield Path(folder)


def test_a_read_only_file_is_left_alone(open_folder: Path) -> None:
    path = open_folder / "a.policy"
    open_folder.chmod(0o777)
    path.chmod(0o444)
    with nobody():
        file = load(str(path))
        with pytest.raises(NotWritten, match=r"^`.*a\.policy` cannot be written: it is read-only$"):
            replace(file, b"new")
    assert path.read_bytes() == b"old"


def test_a_read_only_directory(open_folder: Path) -> None:
    path = open_folder / "a.policy"
    path.chmod(0o666)
    open_folder.chmod(0o555)
    try:
        with nobody():
            file = load(str(path))
            with pytest.raises(NotWritten, match="beside itself and replaced: permission denied"):
                replace(file, b"new")
    finally:
        open_folder.chmod(0o755)
    assert path.read_bytes() == b"old"


def test_a_file_that_somebody_changed_is_left_alone(path: Path) -> None:
    file = load(str(path))
    path.write_bytes(b"newer")
    with pytest.raises(NotWritten, match="changed by somebody else"):
        replace(file, b"new")
    assert path.read_bytes() == b"newer"
    assert os.listdir(path.parent) == ["a.policy"]


def test_a_file_that_somebody_removed_stays_so(path: Path) -> None:
    file = load(str(path))
    path.unlink()
    with pytest.raises(NotWritten, match="removed by somebody else"):
        replace(file, b"new")
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_nothing_is_left_behind_by_a_failure(path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stored.os, failing, full)
    with pytest.raises(NotWritten, match="no space left on device"):
        replace(load(str(path)), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["a.policy"]


def test_an_interrupted_write_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stored.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace(load(str(path)), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["a.policy"]


def test_what_a_killed_process_left_behind_is_not_in_the_way(path: Path) -> None:
    (path.parent / f".policy-{os.getpid()}-0").write_bytes(b"half")
    replace(load(str(path)), b"new")
    assert path.read_bytes() == b"new"


def test_only_so_many_names_are_tried(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "TRIES", 1)
    (path.parent / f".policy-{os.getpid()}-0").write_bytes(b"half")
    with pytest.raises(NotWritten, match="temporary files of earlier runs are in the way"):
        replace(load(str(path)), b"new")


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.policy")
    with pytest.raises(Unreadable, match="is not a regular file"):
        load(str(tmp_path / "a.policy"))


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "a.policy").symlink_to("a.policy")
    with pytest.raises(Unreadable, match="too many levels of symbolic links"):
        load(str(tmp_path / "a.policy"))
