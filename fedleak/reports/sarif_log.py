"""SARIF 2.1.0: a gate's verdicts as results of a tool, for code scanning and collections of security findings."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from fedleak.core.taxonomy import NONE_FITS, TAXONOMY, Taxonomy
from fedleak.evaluation.attack_descriptions import AttackDescription, descriptions
from fedleak.evaluation.labels import attack_in_words, combined_label, prior_label
from fedleak.evaluation.limits import Limit
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.run import Place, Run
from fedleak.evaluation.scores import records
from fedleak.reports.shared_run import shared_run
from fedleak_recorder.format import MANIFEST

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
SEVERITY = "7.0"
"""``security-severity`` of every rule, from 0 to 10, which GitHub shows as high: how severe an inference is depends on
what the clients' data are, which no rule knows."""
TAXONOMIES: Mapping[str, tuple[str, str]] = {
    "nist": ("NIST AI 100-2", "E2025"),
    "atlas": ("MITRE ATLAS", "5.6.0"),
    "aisvs": ("OWASP AISVS", "1.0"),
    "letter": ("SoK: Gradient Inversion Attacks in Federated Learning", "USENIX Security 2025"),
}
"""Name and version of each taxonomy by the attribute of `fedleak.core.taxonomy.Taxonomy`."""
_KIND: Mapping[str, tuple[str, str]] = {
    "failed": ("fail", "error"),
    "ok": ("pass", "none"),
    "undecided": ("open", "none"),
    "unchecked": ("open", "none"),
}
"""``kind`` and ``level`` of a result by the verdict. The standard asks for the level none of all but failures."""
_NUMBERS = ("metric", "limit", "attack", "value", "low", "high", "n", "verdict")
_NOWHERE = Place(round=None, file="results.json", line=1, shards=[])
"""Place of a result of a run of several recordings."""


def sarif_log(run: Run, *, alerts: bool = False) -> bytes:
    """Content of a SARIF file of a run: of all limits and attacks that did not run, or of `alerts` alone."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(shared_run(run), alerts=alerts)]}
    return (json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _run(run: Run, *, alerts: bool) -> dict[str, Any]:
    limits = [*_of_limits(run)]
    found = (
        [one for one in limits if one["kind"] != "pass"] if alerts else [*limits, *_of_attacks_that_did_not_run(run)]
    )
    described = {str(row["attack"]): row for row in records(run.results[run.results["role"].isin(ATTACKS)])}
    rules = _rules([*map(_known_rule, described.values()), *(one.pop("rule") for one in found)])
    places = {rule["id"]: place for place, rule in enumerate(rules)}
    results = [{**one, "ruleIndex": places[one["ruleId"]]} for one in found]
    driver = {
        "name": "fedleak",
        "semanticVersion": "0.2.0",
        "shortDescription": {"text": "Audits what the server of a federated-learning system can infer about clients."},
        "rules": rules,
        "supportedTaxonomies": [{"name": name, "index": i} for i, (name, _) in enumerate(TAXONOMIES.values())],
    }
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"fedleak/{run.experiment}/"},
        "invocations": [{"executionSuccessful": True, "commandLine": run.command}],
        "taxonomies": _taxonomies(rules),
        "results": results,
        "columnKind": "utf16CodeUnits",
        "properties": {
            "commit": run.commit,
            "data": run.data,
            **({} if run.recording is None else {"recording": run.recording.model_dump(include={"folder", "sha256"})}),
        },
    }


def _of_limits(run: Run) -> Iterator[dict[str, Any]]:
    """A result per limit."""
    rows = {str(row["attack"]): row for row in records(run.results)}
    places = [_NOWHERE] * len(run.gate) if run.recording is None else run.recording.places
    for verdict, place in zip(run.gate, places, strict=False):
        kind, level = _KIND[str(verdict["verdict"])]
        name = f"{verdict['metric']}={verdict['limit']:g}"
        numbers = {key: _plain(verdict.get(key)) for key in _NUMBERS}
        attack = verdict.get("attack")
        if attack is None:
            rule = _limit_rule(str(verdict["metric"]))
        else:
            # Verdicts of earlier versions have a setting in the label, and no row of this label.
            rule = _known_rule(rows[attack]) if attack in rows else _rule(attack, None, f"The attack {attack}")
            numbers["attack"] = attack_in_words(attack, verdict.get("setting") or {}, verdict.get("round"))
        message = str(verdict["message"])
        yield _result(run, rule, kind, level, message, place, name=name, properties=numbers)


def _of_attacks_that_did_not_run(run: Run) -> Iterator[dict[str, Any]]:
    """A result per attack that did not run: ``notApplicable`` if its question does not fit the recording, else open."""
    place = _NOWHERE if run.recording is None else _NOWHERE.model_copy(update={"file": MANIFEST})
    for label, reason in {**run.not_run, **run.unrelated}.items():
        kind = "notApplicable" if label in run.unrelated else "open"
        kind_of_attack = _kind(label)
        family = "" if kind_of_attack is None else kind_of_attack.family
        rule_id = label if kind_of_attack is None else f"{family}/{kind_of_attack.name}"
        rule = _rule(rule_id, kind_of_attack, f"The attack {label}")
        message = f"{label} did not run: {reason}"
        yield _result(run, rule, kind, "none", message, place, name="not run", properties={})


def _result(
    run: Run,
    rule: Mapping[str, Any],
    kind: str,
    level: str,
    message: str,
    place: Place,
    *,
    name: str,
    properties: Mapping[str, Any],
) -> dict[str, Any]:
    root = PurePosixPath("" if run.recording is None else run.recording.folder)
    physical = {"artifactLocation": {"uri": quote(str(root / place.file))}, "region": {"startLine": place.line}}
    where: dict[str, Any] = {"physicalLocation": physical}
    if place.round is not None:
        where["logicalLocations"] = [{"name": f"round {place.round}", "kind": "round"}]
    shards = [
        {
            "physicalLocation": {"artifactLocation": {"uri": quote(str(root / shard))}},
            "message": {"text": f"updates of round {place.round}"},
        }
        for shard in place.shards
    ]
    print_of = hashlib.sha256("\n".join([rule["id"], name, str(root)]).encode()).hexdigest()
    return {
        **{"ruleId": rule["id"], "rule": rule, "kind": kind, "level": level, "message": {"text": message}},
        "locations": [where],
        **({"relatedLocations": shards} if shards else {}),
        "partialFingerprints": {"primaryLocationLineHash": f"{print_of[:16]}:1", "fedleakLimit/v1": print_of},
        **({"properties": dict(properties)} if properties else {}),
    }


def _known_rule(row: Mapping[str, Any]) -> dict[str, Any]:
    label, family = str(row["attack"]), str(row["family"] or "")
    asked = f"Infers {row['tells']}" if row["tells"] else f"The attack {label}"
    threat = "; ".join(f"{verb} {row[key]}" for key, verb in (("sees", "sees"), ("knows", "knows")) if row[key])
    active = "manipulates" if row["active"] else "only reads"
    says = f"The server {active}{f'. It {threat}' if threat else ''}."
    return _rule(_id(row), _kind(row["name"] or label, family), asked, says, family)


def _limit_rule(limit: str) -> dict[str, Any]:
    """Rule of a limit that no attack measured."""
    says = "No attack of the audit measured the metric on this recording, so nothing is known of the limit."
    family = Limit.named(limit, math.nan).question or ""
    return _rule(f"limit/{limit}", None, f"The limit on {limit} could not be checked", says, family)


def _rule(name: str, kind: AttackDescription | None, asked: str, says: str = "", family: str = "") -> dict[str, Any]:
    names = TAXONOMY.get(family, NONE_FITS) if kind is None else Taxonomy(**kind.taxonomy)
    summary = "" if kind is None else kind.summary
    whole = " ".join(part for part in (summary, says) if part) or f"{asked}."
    about = [whole, *(f"{title}: {'; '.join(own)}." for title, own in _facts(kind) if own)]
    about.append("A result of the level error says that a limit of yours is exceeded, see docs/audit/gate.md.")
    relations = [
        {"target": {"id": taxon, "toolComponent": {"name": TAXONOMIES[key][0], "index": i}}, "kinds": ["relevant"]}
        for i, (key, taxon) in enumerate(_taxa(names))
        if taxon
    ]
    return {
        "id": name,
        "shortDescription": {"text": asked[:1000]},
        "fullDescription": {"text": whole[:1000]},
        "help": {"text": "\n".join(about), "markdown": "\n\n".join(about)},
        "defaultConfiguration": {"level": "error"},
        **({"relationships": relations} if relations else {}),
        "properties": {
            "tags": ["security", "privacy", "federated-learning", *names.names],
            "precision": "high",
            "security-severity": SEVERITY,
        },
    }


def _facts(kind: AttackDescription | None) -> list[tuple[str, list[str]]]:
    if kind is None:
        return []
    return [("Needs", kind.needs), ("Papers", kind.references)]


def _rules(rules: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules by id, the first of those with one id."""
    found: dict[str, dict[str, Any]] = {}
    for rule in rules:
        found.setdefault(rule["id"], rule)
    return list(found.values())


def _plain(value: Any) -> Any:
    """A value that JSON can hold: an infinite number as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _taxa(names: Taxonomy) -> list[tuple[str, str | None]]:
    return [(key, getattr(names, key)) for key in TAXONOMIES]


def _taxonomies(rules: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The taxonomies, each with the names that rules refer to."""
    targets = [one["target"] for rule in rules for one in rule.get("relationships", [])]
    return [
        {
            **{"name": name, "version": version, "isComprehensive": False},
            "taxa": [
                {"id": taxon}
                for taxon in sorted({one["id"] for one in targets if one["toolComponent"]["index"] == number})
            ],
        }
        for number, (name, version) in enumerate(TAXONOMIES.values())
    ]


def _id(row: Mapping[str, Any]) -> str:
    """``family/label`` of a row's attack, whose label has its family already where two families share a name."""
    label, family = str(row["attack"]), str(row["family"] or "")
    kind = _kind(row["name"] or label, family)
    names = {row["name"], *(kind.labels if kind is not None else ())}
    full_names = {f"{family}/{name}" for name in names}
    if not family or label in {prior_label(family), *full_names, *map(combined_label, full_names)}:
        return label
    return f"{family}/{label}"


def _kind(name: str, family: str = "") -> AttackDescription | None:
    """The description of an attack of this project by its name, which ``family/`` may stand before."""
    named = [one for one in descriptions().attacks if name in (*one.labels, f"{one.family}/{one.name}")]
    fitting = [one for one in named if family in ("", one.family)]
    return fitting[0] if len(fitting) == 1 else None
