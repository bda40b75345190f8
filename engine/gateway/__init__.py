"""A reverse proxy that governs the runs of agents in any language: they only change their base URL.

``Gateway`` serves Chat Completions and Messages, plain and streamed; anything else goes through as it is. A run is a
session (``engine.adapters.session``) that is told what requests show: ``runs`` finds whose it is, ``fold`` reads it.
"""

from engine.gateway.serving import Gateway
from engine.gateway.settings import Bounds, GatewayError, Route

__all__ = ["Bounds", "Gateway", "GatewayError", "Route"]
