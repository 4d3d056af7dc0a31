"""Summaries of a log, for the output checker and in the layout of SACRO-ML."""

import json
from pathlib import Path

import pytest

from fedleak_guard import RefusedError
from fedleak_guard.evidence import write_evidence
from tests.guard_toys import log_of, message, site, update
from tests.wording import lacking


@pytest.fixture
def summaries(tmp_path: Path) -> dict[str, dict[str, object]]:
    guard = site(tmp_path, "update: {max_norm: 1.5}\nmetrics: {names: [loss]}\n")
    guard.release(message())
    guard.release(message(1, metrics={"loss": 0.5}))
    guard.release(message(job="another"))
    with pytest.raises(RefusedError):
        guard.release(message(2, metrics={"patient 7": 0.5}))
    write_evidence(log_of(tmp_path), 1e-5)
    return {
        name: json.loads((tmp_path / "evidence" / name).read_text()) for name in ("egress.json", "attack_results.json")
    }


def test_egress_says_what_left_of_each_job(summaries: dict[str, dict[str, object]]) -> None:
    egress = summaries["egress.json"]
    assert (egress["entries"], egress["messages"], egress["epsilon"]) == (4, 3, None)
    jobs = egress["jobs"]
    assert isinstance(jobs, dict)
    assert (jobs["job"]["released"], jobs["job"]["refused"], jobs["another"]["released"]) == (2, 1, 1)
    assert "not in the policy" in jobs["job"]["last_reasons"][0]
    norm = jobs["job"]["checks"]["update-norm"]
    assert (norm["made"], norm["findings"]) == (3, 0)
    assert norm["largest"] == pytest.approx(1, abs=1e-5)
    (reason,) = jobs["job"]["checks"]["own-label-counts"]["not_made"]
    assert not lacking(reason, "not given", "labels")


def test_attack_results_have_the_layout_of_sacro_ml(tmp_path: Path) -> None:
    """As `sacroml.attacks.attack_report_formatter` and `sacroml.attacks.report` of version 2.0.0 read it."""
    guard = site(
        tmp_path, "received: {record: true}\nprivacy: {clip: 1.0, noise: 0.3}\nfindings: {release-check: log}\n"
    )
    for number in range(2):
        guard.release(message(number, sent=update(number, noise=0.3)))
    write_evidence(log_of(tmp_path), 1e-5)
    results = json.loads((tmp_path / "evidence/attack_results.json").read_text())
    assert list(results) == ["ReleaseCheck_job-release-check"]  # the others were never made
    (one,) = results.values()
    assert set(one) == {"log_id", "log_time", "metadata", "attack_experiment_logger"}
    metadata = one["metadata"]
    assert set(metadata) == {"sacroml_version", "attack_name", "attack_params", "global_metrics"}
    assert set(results) == {f"{metadata['attack_name']}_{one['log_id']}"}
    assert set(one["attack_experiment_logger"]["attack_instance_logger"]) == {"instance_0", "instance_1"}
    assert set(map(type, metadata["global_metrics"].values())) == {bool}
    assert metadata["attack_params"]["made"] == 2
