"""The tests that stand in policy files, played against the function that decides at run time.

``loading`` reads a file and its tests, ``outcome`` plays one, ``report`` says what went wrong. This package imports
nothing by itself: whoever collects files looks at many that have no tests.
"""

from __future__ import annotations

from policy_lang.source import Unreadable, read


def has_tests(path: str) -> bool:
    """Might this file have tests? Looks at its text only, so that a directory of policies costs next to nothing."""
    try:
        text = read(path, path).text
    except Unreadable:
        return True
    return any(line.lstrip().startswith(("test ", 'test"', "import ", 'import"')) for line in text.splitlines())
