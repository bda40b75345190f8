"""A policy that comes through a pipe: read when somebody writes it, refused when nobody does."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from policy_lang.source import Unreadable, contents

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
TEXT = b'policy "p" lang 1\n'


def test_a_pipe_into_which_nobody_writes_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "q.policy"
    os.mkfifo(pipe)
    with pytest.raises(Unreadable) as told:
        contents(str(pipe), "q.policy")
    assert str(told.value) == "`q.policy` cannot be read: it is a pipe, and nobody writes into it"


def test_a_writer_may_come_a_little_later_than_the_reader(tmp_path: Path) -> None:
    pipe = tmp_path / "q.policy"
    os.mkfifo(pipe)
    writer = threading.Timer(0.1, lambda: pipe.write_bytes(TEXT))
    writer.start()
    assert contents(str(pipe), "q.policy") == TEXT
    writer.join()


def test_a_pipe_that_a_shell_has_made(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, TEXT)
    os.close(writing)
    try:
        assert contents(f"/dev/fd/{reading}", "standard input") == TEXT
    finally:
        os.close(reading)
