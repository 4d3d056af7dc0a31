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
    entries = _list(content, "scopes")
    scopes = [scope for scope in entries if isinstance(scope, dict)]
    if len(scopes) < len(entries):
        yield "a scope that is no object, of which nothing can be said"
    if not scopes:
        yield "no scope, so that NVFlare applies no filter of the site"
    names = [scope.get("name") for scope in scopes]
    if content.get("default_scope") not in names:
        yield f"the default scope {json.dumps(content.get('default_scope'))[:60]} is none of the scopes"
    for scope in scopes:
        yield from _faults_of_scope(scope)
    components = _list(content, "components")
    if not all(isinstance(one, dict) for one in components):
        yield "a component that is no object, of which nothing can be said"
    watches = [one for one in components if isinstance(one, dict) and one.get("path") == WATCH]
    if not watches:
        yield f"no component {WATCH}, without which EgressCheck refuses everything"


def _faults_of_scope(scope: dict[str, Any]) -> Iterator[str]:
    where = f"scope {json.dumps(scope.get('name'))[:60]}"
    entries = _list(scope, "task_result_filters")
    filters = [one for one in entries if isinstance(one, dict) and isinstance(one.get("path"), str)]
    if len(filters) < len(entries):
        yield f"{where} has a filter without a path, of which nothing can be said"
    places = [place for place, one in enumerate(filters) if one.get("path") == CLASS]
    leaving = [place for place in places if _checks_results(filters[place].get("direction"))]
    if not leaving:
        yield f"{where} has no result filter {CLASS} of the direction out"
    elif leaving[-1] < len(filters) - 1:
        yield f"{where} has further filters after {CLASS}, whose changes EgressWatch refuses"
    for place in leaving:
        yield from _policy_faults(filters[place], where)


def _checks_results(direction: Any) -> bool:
    """Whether NVFlare applies a result filter of a site with this direction to what leaves."""
    if direction is None:
        return True
    return isinstance(direction, str) and (direction or "out").lower() in ("out", "inout")


def _policy_faults(entry: dict[str, Any], where: str) -> Iterator[str]:
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
    found = content.get(key)
    return found if isinstance(found, list) else []
