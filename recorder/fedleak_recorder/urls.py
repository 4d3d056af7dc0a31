"""URLs without what gives access: user names, passwords, keys, tokens and signatures."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
"""Stands for what was removed."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s'\"<>]*)")
_SECRET_NAME = re.compile(r"key|token|secret|pass|pwd|sig|cred|auth|sas|conn|user|login|cookie|header", re.IGNORECASE)
_SHORTEST = 4
"""Characters of a secret that is removed wherever it stands; a shorter one would blank out words."""


def without_secrets(text: str) -> str:
    """A text whose URLs have no user, no query and no fragment, with which a signed URL gives access.

    Example:
        >>> without_secrets("sftp://me:pass@host/run and https://host/run?X-Amz-Signature=1f0")
        'sftp://***@host/run and https://host/run?***'
    """
    return _URL.sub(lambda found: found[1] + _without_access(found[2]), text)


def hide(text: str, url: str, options: Mapping[str, Any]) -> str:
    """A foreign message without the secrets of a URL and of the options of its file system.

    A package may print the password alone, or the URL without its protocol.
    """
    for secret in sorted(_secrets(url, options), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return without_secrets(text)


def _without_access(rest: str) -> str:
    """What follows ``://`` without its user, query and fragment."""
    user, rest = _parts(rest)
    place, mark, _ = _at_query(rest)
    return (f"{HIDDEN}@" if user else "") + place + (mark + HIDDEN if mark else "")


def _parts(rest: str) -> tuple[str, str]:
    """User and the rest. A password may hold ``@``, ``/`` and ``?``, so the user ends at the last ``@``."""
    authority = rest.partition("/")[0]
    user, mark, place = rest.rpartition("@")
    if mark and ("@" in authority or ":" in authority):
        return user, place
    return "", rest


def _at_query(rest: str) -> tuple[str, str, str]:
    """What is before the first ``?`` or ``#``, that mark, and what is behind it."""
    found = re.search(r"[?#]", rest)
    return (rest, "", "") if found is None else (rest[: found.start()], found[0], rest[found.end() :])


def _secrets(url: str, options: Mapping[str, Any]) -> set[str]:
    """Texts that give access: in the URL, and the values of options whose names say so."""
    found = set(_secret_values(options, secret=False))
    for _, rest in _URL.findall(url):
        user, place = _parts(rest)
        query = _at_query(place)[2]
        found |= {user[start:] for start in _starts(user)} | {user.partition(":")[0]}
        found |= {query, *(pair.partition("=")[2] for pair in re.split(r"[&;?#]", query))}
    found |= {unquote(secret) for secret in found}
    return {secret for secret in found if len(secret) >= _SHORTEST}


def _starts(user: str) -> list[int]:
    """Where a password may begin: behind each colon, since protocols that are chained have colons too."""
    return [0, *(place + 1 for place, letter in enumerate(user) if letter == ":")]


def _secret_values(value: Any, *, secret: bool) -> set[str]:
    """Texts of options below a name that says that they are secret."""
    if isinstance(value, Mapping):
        parts = [
            _secret_values(part, secret=secret or _SECRET_NAME.search(str(name)) is not None)
            for name, part in value.items()
        ]
        return set().union(*parts)
    if isinstance(value, list | tuple):
        return set().union(*(_secret_values(part, secret=secret) for part in value))
    return {str(value)} if secret and isinstance(value, str) else set()
