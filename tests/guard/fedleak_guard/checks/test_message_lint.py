"""What looks like data does not leave, whatever it is called; updates and what the server sent do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak_guard import RefusedError
from tests.guard_toys import message, model, site, update, write_policy
from tests.lint_toys import draws_of, table

ROWS = table(draws_of(0), 200)


def leaking() -> dict[str, Any]:
    """Rows of a table under the names and shapes of the model."""
    return {"weight": ROWS.reshape(4, 300).astype("f"), "bias": np.zeros(4, "f")}


def test_rows_under_the_name_of_a_weight_do_not_leave(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"message-lint: 1 parts.*raw-rows"):
        site(tmp_path).release(message(sent=leaking()))
    assert site(tmp_path).release(message()).tensors is not None


def test_a_policy_may_allow_a_kind_or_log_it(tmp_path: Path) -> None:
    for more in ("lint: {allowed: [raw-rows]}\n", "findings: {message-lint: log}\n"):
        assert site(tmp_path, more).release(message(sent=leaking())).tensors is not None


def test_a_metric_with_a_value_for_each_record_does_not_leave(tmp_path: Path) -> None:
    losses = draws_of(0).random(12).tolist()
    guard = site(tmp_path, "metrics: {names: ['*']}\n")
    with pytest.raises(RefusedError, match="per-record"):
        guard.release(message(metrics={"losses": losses}, examples=12))
    assert guard.release(message(metrics={"losses": losses}, examples=40)).metrics["losses"] == losses


def test_counts_that_the_policy_names_are_the_metrics_own(tmp_path: Path) -> None:
    counts = {"class_counts": [30, 40, 50]}
    with pytest.raises(RefusedError, match="class-counts"):
        site(tmp_path, "metrics: {names: ['*']}\n").release(message(metrics=counts, examples=120))
    named = site(tmp_path, "metrics: {names: ['*'], counts: [class_counts]}\n")
    assert named.release(message(number=1, metrics=counts, examples=120)).metrics == counts


def test_what_the_server_sent_is_nothing_of_the_site(tmp_path: Path) -> None:
    received = {**model(), "weight": leaking()["weight"]}
    sent = {**received, "bias": received["bias"] + update()["bias"]}
    assert site(tmp_path).release(message(sent=sent, received=received, holds="models")).tensors is not None


def test_an_unknown_kind_in_a_policy_is_refused(tmp_path: Path) -> None:
    write_policy(tmp_path, "lint: {allowed: [rows]}\n")
    with pytest.raises(RefusedError, match="raw-rows"):
        site(tmp_path, "lint: {allowed: [rows]}\n").release(message())


def test_the_minimum_is_that_of_the_policy(tmp_path: Path) -> None:
    metrics = {"age_count": 7, "age_sum": 301.5}
    allowed = "metrics: {names: ['*']}\n"
    assert site(tmp_path, allowed).release(message(metrics=metrics)).metrics == metrics
    with pytest.raises(RefusedError, match="few-people"):
        site(tmp_path, f"{allowed}lint: {{minimum: 10}}\n").release(message(number=1, metrics=metrics))
