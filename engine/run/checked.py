"""What a driver is made of, checked before anything is called: a policy, the clients that it names, numbers."""

from __future__ import annotations

from engine.clients.base import Client
from engine.core.policy import Policy
from engine.core.step import Compiled, compile
from engine.run.errors import RunError


def compiled_of(policy: Policy | Compiled) -> Compiled:
    """The policy, compiled. Raises ``TypeError`` if it is none."""
    if not isinstance(policy, Policy | Compiled):
        raise TypeError(f"a driver needs a Policy, not a `{type(policy).__name__}`: `policy_lang.load(path)` gives one")
    return policy if isinstance(policy, Compiled) else compile(policy)


def some_tokens(max_output: int | None) -> int | None:
    """The largest output of a call. Raises ``ValueError`` if it is less than a token."""
    if max_output is not None and max_output < 1:
        raise ValueError(f"max_output is {max_output}: the largest output of a call is at least 1 token")
    return max_output


def all_there(policy: Policy, clients: dict[str, Client]) -> dict[str, Client]:
    """Raises ``RunError`` if the policy names a client that is not there."""
    missing = [name for name in policy.clients() if name not in clients]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        have = ", ".join(f"`{name}`" for name in clients)
        raise RunError(
            f"policy `{policy.name}` names {'the client' if len(missing) == 1 else 'clients'} {names}, which this "
            f"driver does not have (it has {have}): pass it in `clients`, or `allow_missing_clients=True` to skip it"
        )
    return clients
