"""The clients of ``policy run``, by name: from ``--model``, from a settings file, from the journal of a run.

Only clients that the run can use are made: a key that is missing for any other is nobody's concern.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from policy_lang.names import quoted

if TYPE_CHECKING:
    from engine.clients.http_client import HttpClient
    from engine.core.policy import Policy
    from engine.store.protocol import RunRecord
    from policy_lang.settings import ClientSettings, Settings


class ClientsError(Exception):
    """The arguments do not name the clients that the run needs. The message says what to do."""


class Model(NamedTuple):
    """One ``--model``: ``name`` is empty where none was given, ``spec`` PROVIDER:MODEL or a name of the settings."""

    name: str
    spec: str


_NAMED = re.compile(r"([^:=\s]+)=(.+)", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        type=named_model,
        metavar="[NAME=]PROVIDER:MODEL",
        help="openai:MODEL or anthropic:MODEL, the key is read from the environment; with NAME= a client that the "
        "policy may switch to (repeatable, the first is asked first)",
    )
    parser.add_argument(
        "--base-url",
        action="append",
        default=[],
        type=named_url,
        metavar="[NAME=]URL",
        help="another server that speaks the provider's wire format, for every --model (without any: every client of "
        "the settings), or for the client of that name",
    )
    parser.add_argument("--settings", metavar="FILE", help="clients by name (default: policy.toml beside the policy)")


def named_model(text: str) -> Model:
    match = _NAMED.fullmatch(text)
    return Model(match[1], match[2]) if match else Model("", text)


def named_url(text: str) -> tuple[str, str]:
    match = _NAMED.fullmatch(text)
    return (match[1], match[2]) if match else ("", text)


def clients(
    args: argparse.Namespace,
    policy: Policy,
    record: RunRecord | None,
    settings: Settings | None,
    wanted: Mapping[str, str] = {},
) -> dict[str, HttpClient]:
    """The clients that this policy can use, by name, the one that is asked first in front.

    ``wanted`` are those that agents name, each with who names it.

    Raises:
        ClientsError: none is named, one that is wanted is missing, or one cannot be made (a key is missing).
    """
    known = settings.clients if settings else {}
    recorded = _recorded(record, known) if record is not None else []
    primary, given = _primary(args.model or recorded, known)
    wanted = dict.fromkeys(policy.clients(), f"the policy `{policy.name}`") | dict(wanted)
    names = list(dict.fromkeys([primary, *wanted, *(model.name or model.spec for model in recorded)]))
    _all_there(wanted, given, known, settings)
    urls: dict[str, str] = dict(args.base_url)
    everywhere = urls.get("", "") if not args.model else ""
    for name in urls:
        if name and name not in (everybody := {*names, *given, *known}):
            raise ClientsError(f"--base-url is for a client `{name}`, and none has that name{_near(name, everybody)}")
    if everywhere:
        urls = dict.fromkeys(names, everywhere) | urls
    return {name: _client(name, given.get(name), settings, urls) for name in names if name in given or name in known}


def settings_of(args: argparse.Namespace) -> Settings | None:
    """The settings file that is given, or the one beside the policy. Raises ``SettingsError``."""
    from policy_lang import settings

    path = args.settings
    if path is None and args.file is not None:
        path = settings.find(os.path.dirname(args.file) or ".", args.root)
        if path is not None and not os.path.isabs(args.file):
            path = os.path.relpath(path)  # shown as the user would name it
    return settings.load(path) if path is not None else None


def _primary(models: list[Model], known: Mapping[str, ClientSettings]) -> tuple[str, dict[str, str]]:
    """The name of the client that is asked first, and the models given on the command line by name."""
    given: dict[str, str] = {}
    order: list[str] = []
    for model in models:
        if not model.name and ":" not in model.spec:
            if model.spec not in known:
                raise ClientsError(_nobody(model.spec, known))
            order.append(model.spec)
            continue
        name = model.name or model.spec.partition(":")[2].strip() or model.spec
        if name in given:
            raise ClientsError(f"two models are named `{name}`: give them names, as in --model NAME={model.spec}")
        given[name] = model.spec
        order.append(name)
    if not order:
        order = list(known)
    if not order:
        raise ClientsError("name a model: --model openai:NAME or --model anthropic:NAME")
    return order[0], given


def _all_there(
    wanted: Mapping[str, str],
    given: Mapping[str, str],
    known: Mapping[str, ClientSettings],
    settings: Settings | None,
) -> None:
    for name, who in wanted.items():
        if name not in given and name not in known:
            where = f"a table [clients.{name}] in {settings.path if settings else 'policy.toml'}"
            near = _near(name, [*given, *known])
            raise ClientsError(
                f"{who} names the client `{name}`, and nothing says what it is{near}: give "
                f"--model {name}=openai:MODEL, or {where}"
            )


def _nobody(name: str, known: Mapping[str, ClientSettings]) -> str:
    """What to say of a name that no client of the settings has."""
    there = f"known: {quoted(known, 'and')}" if known else "no settings file declares one"
    return f"there is no client named `{name}`{_near(name, known)}: {there}; otherwise write PROVIDER:MODEL"


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean `{near[0]}`?)" if near else ""


def _client(name: str, spec: str | None, settings: Settings | None, urls: Mapping[str, str]) -> HttpClient:
    """One client, from the command line or else from the settings. Raises ``ClientsError``, which names it."""
    from engine.clients import ClientConfigError, from_spec

    options: dict[str, Any] = {"name": name}
    url = urls.get(name)
    place = ""
    if spec is None:
        assert settings is not None
        known = settings.clients[name]
        spec = f"{known.wire}:{known.model}"
        place = settings.place(name, "key_env" if url or _usable(known.base_url) else "base_url") + ": "
        url = url or known.base_url
        options |= {"max_output": known.max_output}
        if known.key_env:
            options["api_key_env"] = known.key_env
    else:
        url = url or urls.get("")
    if url:
        options["base_url"] = url
    try:
        return from_spec(spec, **options)
    except ClientConfigError as problem:
        raise ClientsError(f"{place}the client `{name}`: {problem}") from None


def _usable(base_url: str | None) -> bool:
    from engine.clients import ClientConfigError
    from engine.clients.address import checked_base_url

    try:
        return base_url is None or bool(checked_base_url(base_url))
    except ClientConfigError:
        return False


def _recorded(record: RunRecord, known: Mapping[str, ClientSettings]) -> list[Model]:
    """The clients a journaled run began with, as ``--model`` takes them: by name alone where the settings have it."""
    import msgspec

    from engine.clients.spec import PROVIDERS
    from engine.run.records import host_record

    try:
        host = host_record(record)
    except msgspec.ValidationError:
        raise ClientsError(
            f"run {record.run} was begun by a host of another kind, which alone can go on with it: "
            "its record names no clients"
        ) from None
    providers = {kind.wire: name for name, kind in PROVIDERS.items()}
    names = [host.primary, *(name for name in host.clients if name != host.primary)]
    models = []
    for name in names:
        wire, model = host.clients[name]
        if wire not in providers:
            raise ClientsError(f"the run began with a client of its host's own ({wire}): resume it with that host")
        models.append(Model("", name) if name in known else Model(name, f"{providers[wire]}:{model}"))
    return models
