"""Summaries of a site's log: egress.json for the output checker, attack_results.json in the layout of SACRO-ML."""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fedleak_guard
from fedleak_guard.gaussian import gaussian_epsilon
from fedleak_guard.known_checks import known_checks
from fedleak_guard.ledger import spent
from fedleak_guard.log_entry import read_decisions
from fedleak_recorder.files import write_once

EGRESS, ATTACKS = "egress.json", "attack_results.json"
_SHOWN = 1000
"""Rounds of a check that attack_results.json lists, the last ones."""


def write_evidence(log: Path, delta: float) -> None:
    """Writes both summaries next to a log, after a check of its chain.

    Args:
        log: path of the log.
        delta: of epsilon.

    Raises:
        InputError: the log cannot be read, its chain is broken, or an entry is no decision of a guard.
        OSError: a file could not be written.
    """
    entries, _ = read_decisions(log)
    summaries = {EGRESS: egress(entries, delta), ATTACKS: attack_results(entries)}
    for name, content in summaries.items():
        write_once(log.parent / name, json.dumps(content, indent=1, allow_nan=False).encode())


def egress(entries: list[dict[str, Any]], delta: float) -> dict[str, Any]:
    """What left a site, and what was refused, by job.

    Args:
        entries: of the log.
        delta: of epsilon.
    """
    # Dictionaries keep the order in which jobs and policies came first.
    by_job: dict[str, list[dict[str, Any]]] = {}
    policies: dict[str, None] = {}
    for entry in entries:
        by_job.setdefault(entry["job"], []).append(entry)
        policies[entry["policy"]] = None
    site = spent(entries)
    return {
        "format": 1,
        "written_by": f"fedleak-guard {fedleak_guard.__version__}",
        "head": entries[-1]["hash"] if entries else None,
        "entries": len(entries),
        "policies": list(policies),
        "messages": site.messages,
        "epsilon": _epsilon(site.precision, delta),
        "delta": delta,
        "jobs": {job: _job(job_entries, delta) for job, job_entries in by_job.items()},
    }


def _job(entries: list[dict[str, Any]], delta: float) -> dict[str, Any]:
    """What left in a job, and what was refused, from its entries of the log."""
    released = [entry for entry in entries if entry["event"] == "released"]
    refused = [entry for entry in entries if entry["event"] == "refused"]
    total = spent(entries)
    return {
        "first": entries[0]["date"],
        "last": entries[-1]["date"],
        "released": len(released),
        "noised": sum(entry["noised"] for entry in released),
        "refused": len(refused),
        "messages": total.messages,
        "epsilon": _epsilon(total.precision, delta),
        "last_reasons": refused[-1]["reasons"] if refused else [],
        "checks": {name: _check(name, entries) for name in known_checks()},
    }


def _check(name: str, entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """How often a check was made in a job, with what values, and why it was not made."""
    times_made = 0
    findings = 0
    values = []
    reasons: dict[str, None] = {}
    for entry in entries:
        if name in entry["checks"]:
            outcome = entry["checks"][name]
            times_made += 1
            findings += outcome["found"]
            if outcome["value"] is not None:
                values.append(outcome["value"])
        if name in entry["not_made"]:
            reasons[entry["not_made"][name]] = None
    return {
        "made": times_made,
        "findings": findings,
        "smallest": min(values, default=None),
        "largest": max(values, default=None),
        "not_made": list(reasons),
    }


def attack_results(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The attacks on the own messages, as SACRO-ML 2.0 lays out the results of its attacks on models in report.json.

    One object for each job and attack that was made at least once, under ``NAME_ID``, with ``log_id``, ``log_time``,
    ``metadata`` and ``attack_experiment_logger``, whose instances are rounds. As in its structural attack,
    ``global_metrics`` holds risks alone, which its reports print as detected or not.

    References:
        AI-SDC/SACRO-ML, sacroml/attacks/attack.py, report.py and attack_report_formatter.py of version 2.0.0.
    """
    attacks = [name for name, kind in known_checks().items() if kind.exact]
    results = {}
    for job in dict.fromkeys(entry["job"] for entry in entries):
        job_entries = [entry for entry in entries if entry["job"] == job]
        for name in attacks:
            checked = [entry for entry in job_entries if name in entry["checks"]]
            if not checked:  # SACRO-ML divides by the number of instances
                continue
            reasons = [entry["not_made"][name] for entry in job_entries if name in entry["not_made"]]
            attack_result = _sacro(name, job, checked, list(dict.fromkeys(reasons)))
            attack_name = attack_result["metadata"]["attack_name"]
            results[f"{attack_name}_{attack_result['log_id']}"] = attack_result
    return results


def _sacro(name: str, job: str, checked: list[dict[str, Any]], reasons: list[str]) -> dict[str, Any]:
    """The results of one attack in one job, in the layout of SACRO-ML.

    Args:
        name: the check.
        job: the job.
        checked: the job's entries in which the check was made; at least one.
        reasons: why it was not made in others.
    """
    instances = {}
    for entry in checked[-_SHOWN:]:
        outcome = entry["checks"][name]
        instances[f"instance_{entry['number']}"] = {
            "round": entry["round"],
            "value": outcome["value"],
            "limit": outcome["limit"],
            "risk": outcome["found"],
            "released": entry["event"] == "released",
        }
    # The risk is that of all rounds, also of those that are not listed.
    is_risk = any(entry["checks"][name]["found"] for entry in checked)
    last = datetime.fromtimestamp(checked[-1]["time"], UTC)
    kind = known_checks()[name]
    return {
        "log_id": f"{job}-{name}",
        "log_time": last.strftime("%d/%m/%Y %H:%M:%S"),
        "metadata": {
            "sacroml_version": f"none; written by fedleak-guard {fedleak_guard.__version__}",
            "attack_name": kind.__name__,
            "attack_params": {
                "check": name,
                "measures": kind.text,
                "job": job,
                "made": len(checked),
                "not_made": reasons,
            },
            "global_metrics": {f"{name.replace('-', '_')}_risk": is_risk},
        },
        "attack_experiment_logger": {"attack_instance_logger": instances},
    }


def _epsilon(precision: float, delta: float) -> float | None:
    """Epsilon; None where it is infinite, as JSON has no such number."""
    epsilon = gaussian_epsilon(precision, delta)
    return epsilon if math.isfinite(epsilon) else None
