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
    folder, (entries, _) = log.parent, read_decisions(log)
    summaries = {EGRESS: egress(entries, delta), ATTACKS: attack_results(entries)}
    for name, content in summaries.items():
        write_once(folder / name, json.dumps(content, indent=1, allow_nan=False).encode())


def egress(entries: list[dict[str, Any]], delta: float) -> dict[str, Any]:
    """What left a site, and what was refused, by job.

    Args:
        entries: of the log.
        delta: of epsilon.
    """
    jobs = dict.fromkeys(entry["job"] for entry in entries)
    site = spent(entries)
    return {
        "format": 1,
        "written_by": f"fedleak-guard {fedleak_guard.__version__}",
        "head": entries[-1]["hash"] if entries else None,
        "entries": len(entries),
        "policies": list(dict.fromkeys(entry["policy"] for entry in entries)),
        "messages": site.messages,
        "epsilon": _epsilon(site.precision, delta),
        "delta": delta,
        "jobs": {job: _job([entry for entry in entries if entry["job"] == job], delta) for job in jobs},
    }


def _job(entries: list[dict[str, Any]], delta: float) -> dict[str, Any]:
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
    made = [entry["checks"][name] for entry in entries if name in entry["checks"]]
    reasons = dict.fromkeys(entry["not_made"][name] for entry in entries if name in entry["not_made"])
    values = [one["value"] for one in made if one["value"] is not None]
    return {
        "made": len(made),
        "findings": sum(one["found"] for one in made),
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
    results = {}
    for job in dict.fromkeys(entry["job"] for entry in entries):
        own = [entry for entry in entries if entry["job"] == job]
        for name in (name for name, kind in known_checks().items() if kind.exact):
            made = [entry for entry in own if name in entry["checks"]]
            reasons = list(dict.fromkeys(entry["not_made"][name] for entry in own if name in entry["not_made"]))
            if made:  # SACRO-ML divides by the number of instances
                one = _sacro(name, job, made, reasons)
                results[f"{one['metadata']['attack_name']}_{one['log_id']}"] = one
    return results


def _sacro(name: str, job: str, made: list[dict[str, Any]], reasons: list[str]) -> dict[str, Any]:
    found = [entry for entry in made if entry["checks"][name]["found"]]
    last = made[-1]["time"]
    instances = {
        f"instance_{entry['number']}": {
            "round": entry["round"],
            "value": entry["checks"][name]["value"],
            "limit": entry["checks"][name]["limit"],
            "risk": entry["checks"][name]["found"],
            "released": entry["event"] == "released",
        }
        for entry in made[-_SHOWN:]
    }
    return {
        "log_id": f"{job}-{name}",
        "log_time": datetime.fromtimestamp(last, UTC).strftime("%d/%m/%Y %H:%M:%S"),
        "metadata": {
            "sacroml_version": f"none; written by fedleak-guard {fedleak_guard.__version__}",
            "attack_name": known_checks()[name].__name__,
            "attack_params": {
                **{"check": name, "measures": known_checks()[name].text, "job": job},
                **{"made": len(made), "not_made": reasons},
            },
            "global_metrics": {f"{name.replace('-', '_')}_risk": bool(found)},
        },
        "attack_experiment_logger": {"attack_instance_logger": instances},
    }


def _epsilon(precision: float, delta: float) -> float | None:
    """Epsilon; None where it is infinite."""
    found = gaussian_epsilon(precision, delta)
    return found if math.isfinite(found) else None
