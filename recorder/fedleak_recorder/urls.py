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
    # The longest first: a password that holds another secret would otherwise lose only that part.
    for secret in sorted(_secrets(url, options), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return without_secrets(text)


def _without_access(rest: str) -> str:
    """What follows ``://`` without its user, query and fragment."""
    user, location_and_query = _parts(rest)
    location, mark, _ = _at_query(location_and_query)
    text = location
    if user:
        text = f"{HIDDEN}@{text}"
    if mark:
        text += mark + HIDDEN
    return text


def _parts(rest: str) -> tuple[str, str]:
    """User and the rest. A password may hold ``@``, ``/`` and ``?``, so the user ends at the last ``@``."""
    authority = rest.partition("/")[0]
    user, mark, location = rest.rpartition("@")
    if mark and ("@" in authority or ":" in authority):
        return user, location
    return "", rest


def _at_query(rest: str) -> tuple[str, str, str]:
    """What is before the first ``?`` or ``#``, that mark, and what is behind it."""
    mark = re.search(r"[?#]", rest)
    if mark is None:
        return rest, "", ""
    return rest[: mark.start()], mark[0], rest[mark.end() :]


def _secrets(url: str, options: Mapping[str, Any]) -> set[str]:
    """Texts that give access: in the URL, and the values of options whose names say so."""
    secrets = set(_secret_values(options, secret=False))
    for _, rest in _URL.findall(url):
        user, location = _parts(rest)
        # The name, and whatever of the rest may be the password.
        secrets.add(user.partition(":")[0])
        for start in _starts(user):
            secrets.add(user[start:])
        # A package may print the query, or the value of one key.
        query = _at_query(location)[2]
        secrets.add(query)
        for pair in re.split(r"[&;?#]", query):
            secrets.add(pair.partition("=")[2])
    # A package may print a text as it stands in the URL, or decoded.
    secrets |= {unquote(secret) for secret in secrets}
    return {secret for secret in secrets if len(secret) >= _SHORTEST}


def _starts(user: str) -> list[int]:
    """Where a password may begin: behind each colon, since protocols that are chained have colons too."""
    return [0, *(position + 1 for position, letter in enumerate(user) if letter == ":")]


def _secret_values(value: Any, *, secret: bool) -> set[str]:
    """Texts of options below a name that says that they are secret."""
    texts: set[str] = set()
    if isinstance(value, Mapping):
        for name, part in value.items():
            is_secret = secret or _SECRET_NAME.search(str(name)) is not None
            texts |= _secret_values(part, secret=is_secret)
    elif isinstance(value, list | tuple):
        for part in value:
            texts |= _secret_values(part, secret=secret)
    elif secret and isinstance(value, str):
        texts.add(value)
    return texts
