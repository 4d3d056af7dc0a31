"""The guard: what may leave leaves as it is, and anything else, errors included, keeps the message at the site."""

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak_guard import Guard, Message, RefusedError
from fedleak_guard.chained_log import read_log
from fedleak_guard.check import Measurement
from fedleak_guard.checks.update_norm import UpdateNorm
from fedleak_guard.message import tensors_hash
from tests.guard_kills import killed
from tests.guard_toys import log_of, message, model, site, update, write_policy
from tests.wording import lacking

PRIVATE = "privacy: {clip: 1.0, noise: 0.3}\n"


def entries(folder: Path) -> list[dict[str, Any]]:
    return read_log(log_of(folder))[0]


def test_honest_rounds_leave_unchanged_and_each_has_an_entry(tmp_path: Path) -> None:
    guard = site(tmp_path, "update: {max_norm: 2}\nmetrics: {names: [loss]}\n")
    for number in range(5):
        sent = message(number, metrics={"loss": 0.5})
        released = guard.release(sent)
        assert released.tensors is not None
        assert all(np.array_equal(released.tensors[name], value) for name, value in update(number + 1).items())
        assert released.metrics == {"loss": 0.5}
    assert [entry["event"] for entry in entries(tmp_path)] == ["released"] * 5


def test_models_are_checked_by_their_change_and_leave_as_models(tmp_path: Path) -> None:
    guard = site(tmp_path, "update: {max_norm: 2}\n")
    after = {name: value + update()[name] for name, value in model().items()}
    released = guard.release(message(sent=after, holds="models"))
    assert released.tensors is not None
    assert all(np.array_equal(released.tensors[name], after[name]) for name in after)
    with pytest.raises(RefusedError, match="the received tensor"):
        guard.release(message(sent=after, holds="models", received=None))


FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "tensor": ("", {"sent": {**update(), "more": np.ones(2, "f")}}, "allowed-tensors: .*'more', which no rule names"),
    "shape": ("", {"sent": {"weight": np.ones((4, 301), "f")}}, r"of shape \(4, 301\)"),
    "dtype": ("", {"sent": {"bias": np.ones(4, "d")}}, "of type float64"),
    "integer": ("", {"sent": {"weight": np.ones((4, 300), "i4")}}, "of type int32"),
    "complex": ("", {"sent": {"weight": np.ones((4, 300), "F")}}, "of type complex64"),
    "object": ("", {"sent": {"bias": "text"}}, "expected real numbers"),
    "nan": ("", {"sent": {"bias": np.full(4, np.nan, "f")}}, "4 numbers are NaN"),
    "norm": ("update: {max_norm: 0.5}\n", {}, "L2 norm 1, above 0.5"),
    "share": ("update: {max_changed: 0.1}\n", {}, "a share of 1 of the numbers"),
    "few": ("update: {min_examples: 10}\n", {"examples": 9}, "9 training examples"),
    "unknown number": ("update: {min_examples: 10}\n", {}, "an unknown number of training examples"),
    "metric": ("", {"metrics": {"patient_7": 0.5}}, "'patient_7' is not in the policy"),
    "text": ("metrics: {names: ['*']}\n", {"metrics": {"note": "patient 7"}}, "'note' is no number"),
    "part": ("", {"unknown": ("a file",)}, "a file"),
    "dp off": (PRIVATE, {}, "declared-noise"),
    "clip": (PRIVATE, {"sent": update(norm=30, noise=0.3)}, "declared-clip"),
    "first model": (f"received: {{first_round: [{'f' * 64}]}}\n", {}, "the first model has the hash"),
    "unknown model": (f"received: {{first_round: [{'f' * 64}]}}\n", {"received": None}, "received-hash could not be"),
    "required": ("required: [own-adapter-words]\n", {}, "own-adapter-words could not be made"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_refused_in_one_line(tmp_path: Path, fault: str) -> None:
    more, changes, said = FAULTS[fault]
    with pytest.raises(RefusedError, match=said) as refused:
        site(tmp_path, more).release(message(**changes))
    assert "\n" not in str(refused.value)
    (entry,) = entries(tmp_path)
    assert (entry["event"], entry["content"]) == ("refused", None)
    assert "entry 0" in refused.value.public


@pytest.mark.parametrize(
    "odd",
    [
        {"round": 10**30},
        {"round": -(10**30)},
        {"round": math.nan},
        {"round": "1"},
        {"round": True},
        {"job": "\ud800"},
        {"job": "j" * 300},
        {"job": None},
        {"unknown": ("x\udfff" * 1000,)},
        {"unknown": (5,)},
        {"metrics": {"\ud800": 1}},
        {"metrics": {"m" * 10**6: 1}},
        {"sent": {"\udfff": np.ones(3, "f")}},
        {"sent": {"bias": "\ud800"}},
        {"examples": 10**30},
    ],
)
def test_nothing_that_a_message_carries_makes_the_log_unreadable(tmp_path: Path, odd: dict[str, Any]) -> None:
    guard = site(tmp_path)
    guard.release(message())
    with pytest.raises(RefusedError) as refused:
        guard.release(message(1, **odd))
    assert refused.value.entry == 1
    guard.release(message(2))
    Guard(tmp_path / "policy.yaml").release(message(3))
    assert [entry["event"] for entry in entries(tmp_path)] == ["released", "refused", "released", "released"]


def test_an_entry_that_the_log_could_not_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = site(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(
            UpdateNorm, "measure", lambda *_, **__: Measurement(value=1, found=True, sentence="x", limit=2**70)
        )
        patch.setattr("fedleak_guard.decision._plain", lambda value: value)
        with pytest.raises(RefusedError, match=r"the log could not be written: .*more than 64 bits"):
            guard.release(message())
    guard.release(message())
    assert len(entries(tmp_path)) == 1


def test_a_required_check_that_measures_nothing_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = site(tmp_path, "update: {max_norm: 2}\nmetrics: {names: [loss]}\nrequired: [update-norm, received-rows]\n")
    guard.release(message())
    guard.release(message(sent=None, metrics={"loss": 1.0}))  # of tensors the check measures nothing
    with pytest.raises(RefusedError, match="the check received-rows could not be made: the received model is unknown"):
        guard.release(message(received=None))
    monkeypatch.setattr(UpdateNorm, "measure", lambda *_, **__: None)
    with pytest.raises(RefusedError, match="the check update-norm is required and measured nothing"):
        guard.release(message())


def test_a_list_of_first_models_may_be_required_and_concerns_the_first_round(tmp_path: Path) -> None:
    first = f"received: {{first_round: [{tensors_hash(model())}]}}\nrequired: [received-hash]\n"
    guard = site(tmp_path, first)
    guard.release(message())
    guard.release(message(1, received=model(3)))


def test_an_evaluation_does_not_make_a_first_round_a_later_one(tmp_path: Path) -> None:
    first = f"received: {{first_round: [{tensors_hash(model())}]}}\nmetrics: {{names: [loss]}}\n"
    guard = site(tmp_path, first)
    guard.release(Message(job="job", round=0, metrics={"loss": 1.0}))
    with pytest.raises(RefusedError, match="the first model has the hash"):
        guard.release(message(received=model(3)))
    guard.release(message())


def test_one_large_number_does_not_switch_the_tests_of_noise_off(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"format: 1\nevidence: {tmp_path}/evidence\ntensors: [{{name: '*'}}]\n{PRIVATE}"
        "findings: {release-check: log}\n"
    )
    before = {**model(), "variance": np.full(4, 3e6, "f")}
    noisy = {**update(noise=0.3), "variance": np.zeros(4, "f")}
    for change in (update(), noisy):
        after = {name: value + change.get(name, np.float32(0)) for name, value in before.items()}
        with pytest.raises(RefusedError, match="declared-noise: less noise") as refused:
            Guard(path).release(message(sent=after, holds="models", received=before))
        assert ("'weight'" in str(refused.value)) is (change is not noisy)
    assert [entry["precision"] for entry in entries(tmp_path)] == [None, None]


def test_the_number_of_examples_has_limits_and_leaves_as_a_number(tmp_path: Path) -> None:
    guard = site(tmp_path, "update: {min_examples: 2, max_examples: 100}\nmetrics: {names: [loss]}\n")
    assert type(guard.release(message(examples=np.int64(100))).examples) is int
    for examples, said in ((101, "at most 100"), (1, "asks for 2"), (None, "an unknown number"), (True, "found bool")):
        with pytest.raises(RefusedError, match=said):
            guard.release(message(examples=examples))
    alone: dict[str, Any] = {"sent": None, "metrics": {"loss": 1.0}}
    assert guard.release(message(**alone, examples=1)).examples == 1
    with pytest.raises(RefusedError, match="at most 100"):
        guard.release(message(**alone, examples=101))


def test_messages_of_metrics_alone_have_a_budget_of_their_own(tmp_path: Path) -> None:
    guard = site(tmp_path, "metrics: {names: [loss]}\nbudget: {job_messages: 2, site_messages: 3}\n")
    guard.release(Message(job="job", round=0, metrics={"loss": 1.0}))
    guard.release(message())
    with pytest.raises(RefusedError, match="message 3 of any kind of the job, where the budget has 2"):
        guard.release(Message(job="job", round=0, metrics={"loss": 1.0}))
    guard.release(message(job="another"))
    with pytest.raises(RefusedError, match="message 4 of any kind of the site"):
        guard.release(message(job="a third"))


def test_tensors_leave_in_the_order_of_the_received_model(tmp_path: Path) -> None:
    sent = dict(reversed(update().items()))
    released = site(tmp_path).release(message(sent=sent))
    assert released.tensors is not None
    assert list(released.tensors) == list(model())


def test_noise_that_a_type_cannot_hold_is_a_refusal_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"format: 1\nevidence: {tmp_path}/evidence\ntensors: [{{name: '*'}}]\nupdate: {{max_norm: 0.5}}\n"
        "noise: {clip: 0.5, scale: 1000000}\nfindings: {update-norm: noise}\n"
    )
    short = {"a": np.ones(300, np.float16)}
    with pytest.raises(RefusedError, match="finite numbers with the noise"):
        Guard(path).release(message(sent=short, received=short))
    (entry,) = entries(tmp_path)
    assert (entry["event"], entry["content"], entry["noised"]) == ("refused", None, False)


def test_an_error_of_the_guard_itself_does_not_repeat_what_it_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ValueError("patient 7")

    monkeypatch.setattr("fedleak_guard.guard.keep_round", failing)
    with pytest.raises(RefusedError) as refused:
        site(tmp_path, "received: {record: true}\n").release(message())
    assert "patient 7" not in refused.value.public


class Raising:
    """A tensor that raises as soon as it is read."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_an_exit_while_a_message_is_read_is_a_refusal_in_the_log_and_goes_on(
    tmp_path: Path, error: BaseException
) -> None:
    guard = site(tmp_path)
    with pytest.raises(type(error)):
        guard.release(message(sent={**update(), "bias": Raising(error)}))
    (entry,) = entries(tmp_path)
    assert entry["event"] == "refused"
    assert [lacking(reason, type(error).__name__) for reason in entry["reasons"]] == [[]]
    guard.release(message())
    assert [entry["event"] for entry in entries(tmp_path)] == ["refused", "released"]


def test_an_exit_of_a_check_is_a_refusal_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: Any, **__: Any) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(UpdateNorm, "measure", leave)
    with pytest.raises(SystemExit):
        site(tmp_path).release(message())
    assert [entry["event"] for entry in entries(tmp_path)] == ["refused"]


def test_noise_that_is_there_is_no_finding_and_is_counted(tmp_path: Path) -> None:
    guard = site(tmp_path, f"{PRIVATE}budget: {{job_epsilon: 130}}\n")
    for number in range(3):
        guard.release(message(number, sent=update(number, noise=0.3)))
    with pytest.raises(RefusedError, match="epsilon of the job would be"):
        guard.release(message(4, sent=update(4, noise=0.3)))
    guard.release(message(0, sent=update(5, noise=0.3), job="another"))


def test_a_tensor_outside_the_declared_noise_makes_epsilon_infinite(tmp_path: Path) -> None:
    private = "privacy: {clip: 1.0, noise: 0.3, tensors: [weight]}\nbudget: {job_epsilon: 130}\n"
    private += "findings: {release-check: log}\n"  # it has a finding of its own
    with pytest.raises(RefusedError, match="epsilon of the job would be inf"):
        site(tmp_path, private).release(message(sent=update(noise=0.3)))
    site(tmp_path, private).release(message(sent={"weight": update(noise=0.3)["weight"]}))


def test_noise_itself_is_checked_if_the_guard_gets_the_update_before_it(tmp_path: Path) -> None:
    guard = site(tmp_path, "privacy: {clip: 1.0, noise: 0.001}\n")
    before, noise = update(), np.random.default_rng(3)
    sent = {name: (value + 0.001 * noise.normal(size=value.shape)).astype("f") for name, value in before.items()}
    guard.release(message(sent=sent, before_noise=before))
    with pytest.raises(RefusedError, match="less noise than declared in 2 tensors"):
        guard.release(message(sent=before, before_noise=before))
    large = {name: 2 * value for name, value in before.items()}
    with pytest.raises(RefusedError, match="before the noise, the update has the L2 norm 2"):
        guard.release(message(sent=large, before_noise=large))


def test_a_finding_may_add_noise_or_be_logged(tmp_path: Path) -> None:
    more = "update: {max_norm: 0.5}\nnoise: {clip: 0.5, scale: 0.1}\nbudget: {job_epsilon: 95}\n"
    released = site(tmp_path, f"{more}findings: {{update-norm: noise}}\n").release(message())
    assert released.noised
    assert released.tensors is not None
    off = np.concatenate([(released.tensors[name] - 0.5 * value).ravel() for name, value in update().items()])
    assert float(off.std()) == pytest.approx(0.1, rel=0.1)
    with pytest.raises(RefusedError, match="epsilon of the job would be inf"):
        site(tmp_path, f"{more}findings: {{update-norm: log}}\n").release(message(1))
    (first, second) = entries(tmp_path)
    assert first["precision"] == pytest.approx((2 * 0.5 / 0.1) ** 2)
    assert second["precision"] is None


def test_what_leaves_is_what_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's code changes its arrays while they are checked."""
    sent = update()
    right = UpdateNorm.measure

    def changing(self: UpdateNorm, *given: Any, **options: Any) -> Any:
        sent["bias"][:] = 1e9
        return right(self, *given, **options)

    monkeypatch.setattr(UpdateNorm, "measure", changing)
    released = site(tmp_path, "update: {max_norm: 2}\n").release(message(sent=sent))
    assert released.tensors is not None
    assert np.array_equal(released.tensors["bias"], update()["bias"])


def test_the_budget_counts_messages_over_restarts(tmp_path: Path) -> None:
    more = "budget: {job_rounds: 2, site_rounds: 3}\n"
    site(tmp_path, more).release(message())
    site(tmp_path, more).release(message(1))
    with pytest.raises(RefusedError, match="message 3 of the job, where the budget has 2"):
        site(tmp_path, more).release(message(2))
    site(tmp_path, more).release(message(job="another"))
    with pytest.raises(RefusedError, match="message 4 of the site"):
        site(tmp_path, more).release(message(job="a third"))


def test_a_clock_that_goes_backwards_is_refused(tmp_path: Path) -> None:
    times = iter([100.0, 200.0, 150.0, 201.0])
    guard = site(tmp_path, clock=lambda: next(times))
    guard.release(message())
    guard.release(message(1))
    with pytest.raises(RefusedError, match=r"the clock is 50\.000 seconds behind"):
        guard.release(message(2))
    guard.release(message(3))
    assert [entry["time"] for entry in entries(tmp_path)] == [100, 200, 200, 201]


def test_an_error_of_a_check_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(UpdateNorm, "measure", failing)
    with pytest.raises(RefusedError, match="the check update-norm failed: MemoryError"):
        site(tmp_path).release(message())


@pytest.mark.parametrize("failing", ["write", "fsync", "open"])
def test_a_full_disk_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    guard = site(tmp_path)
    guard.release(message())

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(RefusedError, match="No space left"):
            guard.release(message(1))
    guard.release(message(2))
    assert [entry["round"] for entry in entries(tmp_path)] == [0, 2]


def _broken(folder: Path) -> None:
    path = log_of(folder)
    path.write_bytes(path.read_bytes().replace(b'"round": 0', b'"round": 7'))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "policy.yaml").unlink(), "the file policy.yaml"),
        (lambda folder: (folder / "policy.yaml").write_text("format: 1\n"), "the keys evidence, tensors"),
        (lambda folder: (folder / "policy.yaml").write_bytes(os.urandom(500)), "YAML|key"),
        (lambda folder: (folder / "policy.yaml").write_text(""), "keys and values"),
        (_broken, "unbroken chain"),
    ],
)
def test_a_damaged_policy_or_log_is_a_refusal(tmp_path: Path, damage: Callable[[Path], Any], said: str) -> None:
    site(tmp_path).release(message())
    damage(tmp_path)
    with pytest.raises(RefusedError, match=said):
        Guard(tmp_path / "policy.yaml").release(message(1))


def test_a_policy_takes_effect_at_once(tmp_path: Path) -> None:
    guard = site(tmp_path)
    guard.release(message())
    write_policy(tmp_path, "update: {max_norm: 0.1}\n")
    with pytest.raises(RefusedError, match=r"above 0\.1"):
        guard.release(message(1))
    hashes = [entry["policy"] for entry in entries(tmp_path)]
    assert hashes[0] != hashes[1]


def test_the_log_holds_no_data(tmp_path: Path) -> None:
    guard = site(tmp_path, "metrics: {names: [loss]}\nupdate: {min_examples: 1}\n")
    sent = {**update(), "bias": np.array([1.2345678, 2, 3, 4], "f")}
    records = np.full((3, 300), 0.7654321)
    guard.release(message(sent=sent, metrics={"loss": 0.1357924}, records=records, labels=[1, 2, 3], examples=3))
    text = log_of(tmp_path).read_text()
    assert not any(part in text for part in ("2345678", "1357924", "7654321"))
    assert all(not isinstance(value, list) for value in json.loads(text)["checks"].values())


def test_a_message_of_metrics_alone_costs_no_budget(tmp_path: Path) -> None:
    guard = site(tmp_path, "metrics: {names: [loss]}\nbudget: {job_rounds: 1}\n")
    for number in range(3):
        released = guard.release(Message(job="job", round=number, metrics={"loss": np.float32(0.5)}))
        assert (released.tensors, released.metrics) == (None, {"loss": 0.5})
    guard.release(message())


def test_honest_rounds_with_declared_noise_have_no_false_finding(tmp_path: Path) -> None:
    guard = site(tmp_path, f"{PRIVATE}required: [release-check]\n")
    for number in range(20):
        guard.release(message(number, sent=update(number, norm=number / 20, noise=0.3)))
    assert all(entry["checks"]["declared-noise"]["value"] > 0.9 for entry in entries(tmp_path))
    assert math.isfinite(entries(tmp_path)[0]["precision"])


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_client_sent_nothing_that_is_not_in_the_log(tmp_path: Path, seed: int) -> None:
    sent, missing = killed(tmp_path, seed)
    assert sent > 0
    assert missing == 0
