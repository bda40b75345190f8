"""Files that commands make: whole or not at all, and never over another one unasked."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from policy_lang.cli.writing import NotWritten, write


def test_a_new_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    write(str(path), "a\nü\n")
    other.write_text("")
    assert path.read_bytes() == "a\nü\n".encode()
    assert path.stat().st_mode == other.stat().st_mode


def test_a_file_is_replaced_only_if_somebody_said_so(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("mine")
    with pytest.raises(NotWritten, match="exists; `--force` writes over it"):
        write(str(path), "other")
    assert path.read_text() == "mine"
    write(str(path), "other", over=True)
    assert path.read_text() == "other"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    write(str(tmp_path / "a"), "a")
    assert (tmp_path / "a").read_text() == "a"
    with pytest.raises(NotWritten, match="exists"):
        write(str(tmp_path / "a"), "b")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "a"


def test_what_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotWritten, match="cannot be written: no space left on device"):
        write(str(tmp_path / "a"), "a")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("name", "problem"), [(".", "is a directory"), ("none/a", "no such file or directory")])
def test_where_no_file_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotWritten, match=problem):
        write(name, "a", over=True)


def test_what_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotWritten, match="is not a regular file"):
        write(str(tmp_path / "pipe"), "a", over=True)
