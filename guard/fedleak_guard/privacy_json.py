"""Check of the privacy.json of an NVFlare site: whether every scope has the guard, so that no job can opt out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedleak_guard.policy import read_policy
from fedleak_recorder.errors import InputError
from fedleak_recorder.files import read_bounded
from fedleak_recorder.plain_values import parse_json

CLASS = "fedleak_guard.nvflare.EgressCheck"
WATCH = "fedleak_guard.nvflare.EgressWatch"
_WAY_OUT = "See docs/site/guard.md, 'NVFlare'."


def privacy_faults(path: Path) -> list[str]:
    """Faults of a site's privacy.json, as sentences; none if all jobs pass the guard.

    Raises:
        InputError: the file is missing or no JSON.
    """
    try:
        content = parse_json(read_bounded(path, way_out="Write it to the folder local/ of the site."), where=str(path))
    except ValueError as error:
        raise InputError(expected="a privacy.json", found=str(error), way_out=_WAY_OUT) from None
    return list(_faults(content if isinstance(content, dict) else {}))


def _faults(content: dict[str, Any]) -> Iterator[str]:
    """Faults of the whole file, and of each of its scopes."""
    entries = _list(content, "scopes")
    scopes = [scope for scope in entries if isinstance(scope, dict)]
    if len(scopes) < len(entries):
        yield "a scope that is no object, of which nothing can be said"
    if not scopes:
        yield "no scope, so that NVFlare applies no filter of the site"
    # Jobs that name no scope run in the default one; a scope that is missing has no filters.
    names = [scope.get("name") for scope in scopes]
    if content.get("default_scope") not in names:
        yield f"the default scope {json.dumps(content.get('default_scope'))[:60]} is none of the scopes"
    for scope in scopes:
        yield from _faults_of_scope(scope)
    entries = _list(content, "components")
    components = [component for component in entries if isinstance(component, dict)]
    if len(components) < len(entries):
        yield "a component that is no object, of which nothing can be said"
    if not any(component.get("path") == WATCH for component in components):
        yield f"no component {WATCH}, without which EgressCheck refuses everything"


def _faults_of_scope(scope: dict[str, Any]) -> Iterator[str]:
    """Faults of one scope: no check of results, or filters behind it."""
    where = f"scope {json.dumps(scope.get('name'))[:60]}"
    entries = _list(scope, "task_result_filters")
    filters = []
    for filter_entry in entries:
        if isinstance(filter_entry, dict) and isinstance(filter_entry.get("path"), str):
            filters.append(filter_entry)
    if len(filters) < len(entries):
        yield f"{where} has a filter without a path, of which nothing can be said"
    checks = []
    last_position = -1
    for position, filter_entry in enumerate(filters):
        if filter_entry["path"] == CLASS and _checks_results(filter_entry.get("direction")):
            checks.append(filter_entry)
            last_position = position
    if not checks:
        yield f"{where} has no result filter {CLASS} of the direction out"
    elif last_position < len(filters) - 1:
        # NVFlare applies filters in the order of the list.
        yield f"{where} has further filters after {CLASS}, whose changes EgressWatch refuses"
    for filter_entry in checks:
        yield from _policy_faults(filter_entry, where)


def _checks_results(direction: Any) -> bool:
    """Whether NVFlare applies a result filter of a site with this direction to what leaves."""
    if direction is None:
        return True
    # NVFlare's own rule: an empty text means out, and capital letters do not count.
    return isinstance(direction, str) and (direction or "out").lower() in ("out", "inout")


def _policy_faults(entry: dict[str, Any], where: str) -> Iterator[str]:
    """Whether a filter of the guard names a policy that can be read."""
    arguments = entry.get("args")
    policy = arguments.get("policy") if isinstance(arguments, dict) else None
    if not isinstance(policy, str):
        yield f"{where} has a filter {CLASS} whose args name no policy"
        return
    try:
        read_policy(policy)
    except InputError as error:
        yield f"{where}: {error}"


def _list(content: dict[str, Any], key: str) -> list[Any]:
    """The list under a key; empty if there is none."""
    entries = content.get(key)
    return entries if isinstance(entries, list) else []
