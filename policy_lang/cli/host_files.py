"""The user's own Python: tools, resolvers and agents for ``policy run``, from a file or a module.

Whatever goes wrong in there is told in one line with its place, never as a traceback.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from policy_lang.names import nearest

if TYPE_CHECKING:
    from engine.run.agents import Agent


class HostFileError(Exception):
    """The user's file cannot be used; the message says where and why."""


def tools(places: Iterable[str], folder: str = "") -> list[Any]:
    """The tools of some files or modules: those named (``search.py:find,read``), or what ``TOOLS`` lists, or else every
    public function defined there. Paths are relative to ``folder``.

    Raises:
        HostFileError: a place cannot be imported, or has no such tools.
    """
    found: list[Any] = []
    for whole in places:
        place, names = _split(whole)
        module = load(place, folder)
        found += [_named(module, place, name) for name in names] if names else _all_tools(module, place)
    return found


_SOME: Final = re.compile(r"(.+):(\w+(?:\s*,\s*\w+)*)")


def _split(place: str) -> tuple[str, list[str]]:
    """A file or module, and the names of what is meant in it."""
    match = _SOME.fullmatch(place.strip())
    return (match[1], [name.strip() for name in match[2].split(",")]) if match else (place, [])


def _named(module: ModuleType, place: str, name: str) -> Any:
    from engine.run.tools import Tool

    value = getattr(module, name, None)
    if isinstance(value, Tool) or callable(value):
        return value
    near = nearest(name, [known for known, value in vars(module).items() if callable(value) and known[:1] != "_"])
    raise HostFileError(f"{place} has no tool `{name}`{f'; did you mean `{near}`?' if near else ''}")


def _all_tools(module: ModuleType, place: str) -> list[Any]:
    from engine.run.tools import Tool

    listed = getattr(module, "TOOLS", None)
    if listed is None:
        listed = [v for v in _public(module) if isinstance(v, Tool) or _own_function(v, module)]
    elif not isinstance(listed, (list, tuple)):
        raise HostFileError(
            f"TOOLS of {place} must be a list of functions, not a value of type `{type(listed).__name__}`"
        )
    if not listed:
        raise HostFileError(f"{place} has no tools: define functions, or list them in TOOLS")
    return list(listed)


def agents(place: str) -> list[Agent]:
    """The agents of a file or module: what ``AGENTS`` lists, or else every public ``Agent`` in it.

    Raises:
        HostFileError: it cannot be imported, or has no agents.
    """
    from engine.run.agents import Agent

    module = load(place)
    listed = getattr(module, "AGENTS", None)
    if listed is None:
        listed = list({id(value): value for value in _public(module) if isinstance(value, Agent)}.values())
    elif not isinstance(listed, (list, tuple)):
        raise HostFileError(
            f"AGENTS of {place} must be a list of agents, not a value of type `{type(listed).__name__}`"
        )
    for value in listed:
        if not isinstance(value, Agent):
            raise HostFileError(f"AGENTS of {place} has a value of type `{type(value).__name__}`: it takes `Agent(…)`")
    if not listed:
        raise HostFileError(f"{place} has no agents: make `Agent(…)` objects (from engine), or list them in AGENTS")
    return list(listed)


def defined_at(function: Callable[..., Any]) -> str:
    """``FILE:LINE`` of a function, "" if nothing says so."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f"{_shown(code.co_filename)}:{code.co_firstlineno}"


def _shown(path: str) -> str:
    """A path as a user would name it."""
    short = os.path.relpath(path)
    return path if short.startswith(os.pardir) else short


def resolvers(places: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """The public functions of some files or modules, by name. Raises ``HostFileError``."""
    found: dict[str, Callable[..., Any]] = {}
    for place in places:
        module = load(place)
        functions = [value for value in _public(module) if _own_function(value, module)]
        if not functions:
            raise HostFileError(f"{place} has no resolvers: define functions of one parameter, the context")
        found.update((function.__name__, function) for function in functions)
    return found


def load(place: str, folder: str = "") -> ModuleType:
    """Import a ``.py`` file by its path, relative to ``folder``, or a module by its name. Raises ``HostFileError``."""
    is_file = place.endswith(".py") or os.sep in place
    place = os.path.join(folder, place) if is_file else place
    if is_file and not os.path.isfile(place):
        raise HostFileError(f"there is no file {place}")
    try:
        if is_file:
            return _from_file(place)
        sys.path.insert(0, folder or os.getcwd())  # as `python -m` does
        try:
            return importlib.import_module(place)
        finally:
            sys.path.remove(folder or os.getcwd())
    except ModuleNotFoundError as exc:
        if exc.name == place or (exc.name and place.startswith(f"{exc.name}.")):
            raise HostFileError(
                f"there is no module `{place}`; a file is given by its path, as in ./{place}.py"
            ) from None
        raise HostFileError(_told(place, exc)) from None
    except (KeyboardInterrupt, HostFileError):
        raise
    except BaseException as exc:  # the user's code may raise anything, SystemExit too
        raise HostFileError(_told(place, exc)) from None


_read: dict[tuple[str, int], ModuleType] = {}
"""Files that were imported, as they were then: two agents that take tools from one file share its variables."""


def _from_file(path: str) -> ModuleType:
    version = (os.path.realpath(path), os.stat(path).st_mtime_ns)
    if version not in _read:
        _read[version] = _import(path)
    return _read[version]


def _import(path: str) -> ModuleType:
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(f"_policy_run_{len(_read)}_{name}", path)
    if spec is None or spec.loader is None:
        raise HostFileError(f"{path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are looked up there
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)  # what lies beside the file can be imported, as when it is run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def _public(module: ModuleType) -> list[Any]:
    return [value for name, value in vars(module).items() if not name.startswith("_")]


def _own_function(value: Any, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _told(place: str, exc: BaseException) -> str:
    """What was raised, and the line of the user's file where it was: ``place``, or one that it imports."""
    said = str(exc).splitlines()[0] if str(exc) else ""
    file, line = place, None
    if isinstance(exc, SyntaxError):
        file, line, said = exc.filename or place, exc.lineno, exc.msg
    else:
        frames = traceback.extract_tb(exc.__traceback__)
        own = [frame for frame in frames if "importlib" not in frame.filename and not _is_ours(frame.filename)]
        if own:
            file, line = own[-1].filename, own[-1].lineno
    if os.path.abspath(file) == os.path.abspath(place):
        file = place
    where = f"{file}:{line}" if line else file
    return f"{where}: {type(exc).__name__}{f': {said}' if said else ''}"


def _is_ours(path: str) -> bool:
    """A file of this project, or code that was made: what is wrong is what it was given."""
    import engine
    import policy_lang

    return path.startswith("<") or any(
        path.startswith(os.path.join(folder, "")) for m in (engine, policy_lang) for folder in m.__path__
    )
