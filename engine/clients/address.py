"""Where a client sends to: which base URLs are allowed, and which of them are this machine."""

from __future__ import annotations

import ipaddress

import httpx

from engine.clients.base import ClientConfigError


def checked_base_url(text: str) -> httpx.URL:
    """The URL. Raises ``ClientConfigError`` for one that cannot be a base, or that contains a secret."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as exc:
        raise ClientConfigError(f"`{text}` is not a URL: {exc}") from None
    if url.userinfo:
        raise ClientConfigError("a base URL may not contain a user or password; pass a header instead")
    if url.scheme not in ("http", "https") or not url.host:
        raise ClientConfigError(f"`{text}` is not an http:// or https:// URL")
    if url.query or url.fragment:
        raise ClientConfigError(f"`{text}` may not contain `?` or `#`: give the address up to the version")
    return url


def is_loopback(host: str) -> bool:
    """Does what is sent to this host stay on this machine?"""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
