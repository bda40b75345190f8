"""Which files below a directory are policy files."""

import os
from pathlib import Path

import pytest

from policy_lang.walking import policy_files


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_are_left_out_and_links_to_nowhere_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text("")
    os.mkfifo(tmp_path / "b.policy")
    (tmp_path / "c.policy").symlink_to("nowhere")
    assert [os.path.basename(path) for path in policy_files(str(tmp_path))] == ["a.policy", "c.policy"]
