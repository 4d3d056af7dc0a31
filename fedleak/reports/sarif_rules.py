"""Rules of a SARIF file: one for each attack, or for a limit that none measured, with its names in taxonomies."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fedleak.core.bibliography import whole_reference
from fedleak.core.taxonomy import NONE_FITS, TAXONOMY, Taxonomy
from fedleak.evaluation.attack_descriptions import AttackDescription, descriptions
from fedleak.evaluation.labels import combined_label, prior_label
from fedleak.evaluation.limits import Limit

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


def attack_rule(row: Mapping[str, Any]) -> dict[str, Any]:
    """Rule of an attack that ran, from a row of its results."""
    label = str(row["attack"])
    family = str(row["family"] or "")
    title = f"Infers {row['tells']}" if row["tells"] else f"The attack {label}"
    threat_model = "The server manipulates" if row["active"] else "The server only reads"
    capabilities = "; ".join(f"{verb} {row[verb]}" for verb in ("sees", "knows") if row[verb])
    if capabilities:
        threat_model += f". It {capabilities}"
    return rule_of(_id(row), description_of(row["name"] or label, family), title, f"{threat_model}.", family)


def limit_rule(limit: str) -> dict[str, Any]:
    """Rule of a limit that no attack measured."""
    says = "No attack of the audit measured the metric on this recording, so nothing is known of the limit."
    family = Limit.named(limit, math.nan).question or ""
    return rule_of(f"limit/{limit}", None, f"The limit on {limit} could not be checked", says, family)


def rule_of(
    name: str, description: AttackDescription | None, title: str, says: str = "", family: str = ""
) -> dict[str, Any]:
    """A rule with its place in the taxonomies; of a stranger's attack, that of its family."""
    if description is None:
        taxonomy = TAXONOMY.get(family, NONE_FITS)
        summary = ""
    else:
        taxonomy = Taxonomy(**description.taxonomy)
        summary = description.summary
    full_description = " ".join(part for part in (summary, says) if part) or f"{title}."
    help_texts = [full_description]
    if description is not None and description.needs:
        help_texts.append(f"Needs: {'; '.join(description.needs)}.")
    if description is not None and description.references:
        help_texts.append(f"Papers: {'; '.join(map(whole_reference, description.references))}.")
    help_texts.append("A result of the level error says that a limit of yours is exceeded, see docs/audit/gate.md.")
    rule: dict[str, Any] = {
        "id": name,
        "shortDescription": {"text": title[:1000]},
        "fullDescription": {"text": full_description[:1000]},
        "help": {"text": "\n".join(help_texts), "markdown": "\n\n".join(help_texts)},
        "defaultConfiguration": {"level": "error"},
    }
    relationships = _relationships(taxonomy)
    if relationships:
        rule["relationships"] = relationships
    rule["properties"] = {
        "tags": ["security", "privacy", "federated-learning", *taxonomy.names],
        "precision": "high",
        "security-severity": SEVERITY,
    }
    return rule


def _relationships(taxonomy: Taxonomy) -> list[dict[str, Any]]:
    """What a rule is called in each taxonomy that has a name for it."""
    relationships: list[dict[str, Any]] = []
    for index, (key, (title, _)) in enumerate(TAXONOMIES.items()):
        taxon = getattr(taxonomy, key)
        if taxon:
            target = {"id": taxon, "toolComponent": {"name": title, "index": index}}
            relationships.append({"target": target, "kinds": ["relevant"]})
    return relationships


def rules_by_id(rules: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules by id, the first of those with one id."""
    by_id: dict[str, dict[str, Any]] = {}
    for rule in rules:
        by_id.setdefault(rule["id"], rule)
    return list(by_id.values())


def taxonomies_of(rules: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The taxonomies, each with the names that rules refer to."""
    taxa: list[set[str]] = [set() for _ in TAXONOMIES]
    for rule in rules:
        for relationship in rule.get("relationships", []):
            target = relationship["target"]
            taxa[target["toolComponent"]["index"]].add(target["id"])
    return [
        {
            "name": name,
            "version": version,
            "isComprehensive": False,
            "taxa": [{"id": taxon} for taxon in sorted(taxa_of_rules)],
        }
        for (name, version), taxa_of_rules in zip(TAXONOMIES.values(), taxa, strict=True)
    ]


def _id(row: Mapping[str, Any]) -> str:
    """``family/label`` of a row's attack, whose label has its family already where two families share a name."""
    label = str(row["attack"])
    family = str(row["family"] or "")
    if not family:
        return label
    description = description_of(row["name"] or label, family)
    names = {row["name"]}
    if description is not None:
        names.update(description.labels)
    full_names = {f"{family}/{name}" for name in names}
    if label in {prior_label(family), *full_names, *map(combined_label, full_names)}:
        return label
    return f"{family}/{label}"


def description_of(name: str, family: str = "") -> AttackDescription | None:
    """The description of an attack of this project by its name, which ``family/`` may stand before."""
    fitting = []
    for attack in descriptions().attacks:
        is_named = name in (*attack.labels, f"{attack.family}/{attack.name}")
        if is_named and family in ("", attack.family):
            fitting.append(attack)
    if len(fitting) != 1:
        return None
    return fitting[0]
