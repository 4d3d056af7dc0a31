"""SARIF 2.1.0: a gate's verdicts as results of a tool, for code scanning and collections of security findings."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from fedleak.evaluation.labels import attack_in_words
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.run import RecordedLine, Run
from fedleak.evaluation.scores import records
from fedleak.reports.sarif_rules import (
    TAXONOMIES,
    attack_rule,
    description_of,
    limit_rule,
    rule_of,
    rules_by_id,
    taxonomies_of,
)
from fedleak.reports.shared_run import shared_run
from fedleak_recorder.format import MANIFEST

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_KIND: Mapping[str, tuple[str, str]] = {
    "failed": ("fail", "error"),
    "ok": ("pass", "none"),
    "undecided": ("open", "none"),
    "unchecked": ("open", "none"),
}
"""``kind`` and ``level`` of a result by the verdict. The standard asks for the level none of all but failures."""
_NUMBERS = ("metric", "limit", "attack", "value", "low", "high", "n", "verdict")
_NOWHERE = RecordedLine(round=None, file="results.json", line=1, shards=[])
"""RecordedLine of a result of a run of several recordings."""


def sarif_log(run: Run, *, alerts: bool = False) -> bytes:
    """Content of a SARIF file of a run: of all limits and attacks that did not run, or of `alerts` alone."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(shared_run(run), alerts=alerts)]}
    return (json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _run(run: Run, *, alerts: bool) -> dict[str, Any]:
    results = [*_of_limits(run)]
    if alerts:
        results = [result for result in results if result["kind"] != "pass"]
    else:
        results += _of_attacks_that_did_not_run(run)
    # A rule for each attack that ran, then those of results without one; a result refers to its rule by position.
    described = {str(row["attack"]): row for row in records(run.results[run.results["role"].isin(ATTACKS)])}
    rules = rules_by_id([*map(attack_rule, described.values()), *(result.pop("rule") for result in results)])
    positions = {rule["id"]: position for position, rule in enumerate(rules)}
    for result in results:
        result["ruleIndex"] = positions[result["ruleId"]]
    driver = {
        "name": "fedleak",
        "semanticVersion": "0.2.0",
        "shortDescription": {"text": "Audits what the server of a federated-learning system can infer about clients."},
        "rules": rules,
        "supportedTaxonomies": [
            {"name": name, "index": position} for position, (name, _) in enumerate(TAXONOMIES.values())
        ],
    }
    properties: dict[str, Any] = {"commit": run.commit, "data": run.data}
    if run.recording is not None:
        properties["recording"] = run.recording.model_dump(include={"folder", "sha256"})
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"fedleak/{run.experiment}/"},
        "invocations": [{"executionSuccessful": True, "commandLine": run.command}],
        "taxonomies": taxonomies_of(rules),
        "results": results,
        "columnKind": "utf16CodeUnits",
        "properties": properties,
    }


def _of_limits(run: Run) -> Iterator[dict[str, Any]]:
    """A result per limit."""
    rows = {str(row["attack"]): row for row in records(run.results)}
    places = [_NOWHERE] * len(run.gate)
    if run.recording is not None:
        places = run.recording.places
    for verdict, verdict_place in zip(run.gate, places, strict=False):
        kind, level = _KIND[str(verdict["verdict"])]
        numbers = {key: _plain(verdict.get(key)) for key in _NUMBERS}
        attack = verdict.get("attack")
        if attack is None:
            rule = limit_rule(str(verdict["metric"]))
        else:
            # Verdicts of earlier versions have a setting in the label, and no row of this label.
            rule = attack_rule(rows[attack]) if attack in rows else rule_of(attack, None, f"The attack {attack}")
            numbers["attack"] = attack_in_words(attack, verdict.get("setting") or {}, verdict.get("round"))
        yield _result(
            run,
            rule,
            kind,
            level,
            str(verdict["message"]),
            verdict_place,
            name=f"{verdict['metric']}={verdict['limit']:g}",
            properties=numbers,
        )


def _of_attacks_that_did_not_run(run: Run) -> Iterator[dict[str, Any]]:
    """A result per attack that did not run: ``notApplicable`` if its question does not fit the recording, else open."""
    manifest_place = _NOWHERE
    if run.recording is not None:
        manifest_place = _NOWHERE.model_copy(update={"file": MANIFEST})
    for label, reason in {**run.not_run, **run.unrelated}.items():
        description = description_of(label)
        rule_id = label
        if description is not None:
            rule_id = f"{description.family}/{description.name}"
        yield _result(
            run,
            rule_of(rule_id, description, f"The attack {label}"),
            "notApplicable" if label in run.unrelated else "open",
            "none",
            f"{label} did not run: {reason}",
            manifest_place,
            name="not run",
            properties={},
        )


def _result(
    run: Run,
    rule: Mapping[str, Any],
    kind: str,
    level: str,
    message: str,
    recorded_place: RecordedLine,
    *,
    name: str,
    properties: Mapping[str, Any],
) -> dict[str, Any]:
    """A result at a place in the recording, with its rule."""
    root = PurePosixPath("" if run.recording is None else run.recording.folder)
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(str(root / recorded_place.file))},
            "region": {"startLine": recorded_place.line},
        }
    }
    if recorded_place.round is not None:
        location["logicalLocations"] = [{"name": f"round {recorded_place.round}", "kind": "round"}]
    # A viewer knows a result again by rule, limit and folder, whatever line the round has in a new recording.
    fingerprint = hashlib.sha256("\n".join([rule["id"], name, str(root)]).encode()).hexdigest()
    result: dict[str, Any] = {
        "ruleId": rule["id"],
        "rule": rule,
        "kind": kind,
        "level": level,
        "message": {"text": message},
        "locations": [location],
    }
    if recorded_place.shards:
        result["relatedLocations"] = [
            {
                "physicalLocation": {"artifactLocation": {"uri": quote(str(root / shard))}},
                "message": {"text": f"updates of round {recorded_place.round}"},
            }
            for shard in recorded_place.shards
        ]
    result["partialFingerprints"] = {
        "primaryLocationLineHash": f"{fingerprint[:16]}:1",
        "fedleakLimit/v1": fingerprint,
    }
    if properties:
        result["properties"] = dict(properties)
    return result


def _plain(value: Any) -> Any:
    """A value that JSON can hold: an infinite number as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
