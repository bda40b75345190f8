"""The blocks of code in the documentation: each is what it claims to be, and names only what is there."""

from __future__ import annotations

import ast
import configparser
import importlib
import importlib.util
import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from doc_sessions import FILES, GENERATED, ROOT, files_of

from engine.rehearsal import Script
from policy_lang import lint, lint_settings, settings
from policy_lang.diagnostics import NOTE
from policy_lang.formatting import formatted
from policy_lang.renderers import concise
from policy_lang.testing.loading import load
from policy_lang.testing.outcome import run

BLOCK = re.compile(
    r"^(?:<!-- (file|faulty|not run): ([^\n]+?) -->\n+)?```([a-z]+)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)

_HOOKS = re.compile(r"^- id: (\S+)$", re.MULTILINE)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def problems(text: str, page: Path) -> Iterator[str]:
    """Everything that is wrong with the blocks of a page."""
    yield from policy_problems(text, page)
    yield from python_problems(text, {Path(name).stem for name in files_of(text, page) if name.endswith(".py")})
    yield from console_problems(text)
    for block in BLOCK.finditer(text):
        check = _DATA.get(block[3])
        if check is not None and block[1] != "faulty" and (trouble := check(block[4])):
            yield f"{block[3]} in line {line_of(text, block.start(3))}: {trouble}"


# ---- policies


def policy_problems(text: str, page: Path = ROOT / "README.md") -> Iterator[str]:
    """Policies that have errors or warnings, or not the one layout; and faulty ones that have nothing."""
    with tempfile.TemporaryDirectory() as place:
        for number, block in enumerate(BLOCK.finditer(text), 1):
            for other in FILES.finditer(text, 0, block.start()):
                _put(Path(place), files_of(other[0], page))
            name = block[2] if block[1] in ("file", "faulty") else f"block{number}.policy"
            if block[3] == "policy" or block[1] == "file":
                _put(Path(place), {name: block[4]})
            if block[3] == "policy" and (trouble := _judged(Path(place) / name, block[4], block[1] == "faulty")):
                yield f"policy in line {line_of(text, block.start(3))}: {trouble.replace(f'{place}/', '')}"


def _put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _judged(path: Path, text: str, faulty: bool) -> str:
    found = [finding for finding in lint(path) if finding.severity != NOTE]
    failed = [] if found else _failed_tests(path)
    if faulty:
        return "" if found or failed else "nothing is wrong with it, although the page says so"
    if found:
        return concise.render(found).strip()
    if failed:
        return f"the test `{failed[0]}` fails"
    return "" if formatted(text) == text else "`policy fmt` would change it"


def _failed_tests(path: Path) -> list[str]:
    """The tests of a sound policy that do not pass."""
    suite = load(str(path))
    if not suite.cases:
        return []
    compiled = suite.compiled()
    return [case.name for case in suite.cases if run(compiled, case).failure]


# ---- Python


def python_problems(text: str, own: Collection[str] = ()) -> Iterator[str]:
    """Python that is none, and imports of what is not there. ``own`` are modules that the page has itself."""
    for block in BLOCK.finditer(text):
        if block[3] != "python":
            continue
        where = f"python in line {line_of(text, block.start(3))}"
        try:
            tree = compile(block[4], "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
        except SyntaxError as error:
            yield f"{where}: {error.msg}"
            continue
        for node in ast.walk(tree):
            if not (isinstance(node, ast.ImportFrom) and node.module in own):
                yield from (f"{where}: {trouble}" for trouble in _import_problems(node))


def _import_problems(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if importlib.util.find_spec(alias.name.split(".")[0]) is None:
                yield f"there is no module `{alias.name}`"
    elif isinstance(node, ast.ImportFrom) and node.module:
        try:
            module = importlib.import_module(node.module)
        except ImportError:
            yield f"there is no module `{node.module}`"
            return
        for alias in node.names:
            if not hasattr(module, alias.name) and importlib.util.find_spec(f"{node.module}.{alias.name}") is None:
                yield f"`{node.module}` has no `{alias.name}`"


# ---- terminals


def console_problems(text: str) -> Iterator[str]:
    """Outputs that nobody has produced: neither by a mark, nor said to be of a thing that cannot be run here."""
    kept = [(part.start(), part.end()) for part in GENERATED.finditer(text)]
    for block in BLOCK.finditer(text):
        start = block.start(3)
        if block[3] != "console" or block[1] == "not run" or any(first < start < last for first, last in kept):
            continue
        plain = re.sub(r"\\\n", "", block[4])
        if any(line and not line.startswith("$ ") for line in plain.splitlines()):
            yield f"console in line {line_of(text, start)}: its output is not produced by a mark"


# ---- data


def _toml(text: str) -> str:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    try:
        if "reply" in data:
            Script.parse(text)
        elif {"clients", "agents", "lint"} & set(data) or "tool" in data:
            return _settings(text, data)
    except (settings.SettingsError, ValueError) as error:
        return str(error)
    return ""


def _settings(text: str, data: dict[str, object]) -> str:
    """What is wrong with settings, of clients, agents and rules."""
    name = settings.PROJECT_FILE if "tool" in data else settings.FILE_NAME
    if name == settings.FILE_NAME:
        settings.loads(text)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        path.write_text(text, encoding="utf-8")
        return "; ".join(problem.message for problem in lint_settings.load(str(path)).problems)


def _yaml(text: str) -> str:
    """Hooks that a configuration of pre-commit names and we do not have."""
    known = set(_HOOKS.findall((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")))
    named = set(re.findall(r"^ +- id: (policy-\S+)", text, re.MULTILINE))
    return "".join(f"there is no hook `{name}`" for name in sorted(named - known))


def _json(text: str) -> str:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return str(error)
    return ""


def _ini(text: str) -> str:
    try:
        configparser.ConfigParser().read_string(text)
    except configparser.Error as error:
        return str(error)
    return ""


_DATA: dict[str, Callable[[str], str]] = {"toml": _toml, "yaml": _yaml, "json": _json, "ini": _ini}
