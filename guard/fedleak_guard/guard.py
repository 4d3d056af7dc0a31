"""The guard: decides whether a message leaves, and writes down that it does before it can."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedleak_guard.chained_log import ChainedLog
from fedleak_guard.check import Check, Measurement, NotMadeError
from fedleak_guard.decision import CheckOutcomes, decision_entry
from fedleak_guard.earlier_round import keep_round
from fedleak_guard.gaussian_noise import clipped_with_noise
from fedleak_guard.known_checks import checks_to_make
from fedleak_guard.ledger import Ledger, precision_of
from fedleak_guard.message import Message, own_copy, tensors_hash
from fedleak_guard.noise_tests import private_tensors
from fedleak_guard.own_data import with_own_data
from fedleak_guard.plain_message import holds_numbers_alone, shown
from fedleak_guard.policy import Policy, read_policy
from fedleak_guard.refusal import RefusedError, reason_of
from fedleak_recorder.arrays import Array
from fedleak_recorder.errors import InputError, require

_LONGEST_JOB = 200
"""Characters of a job's name."""
_PRIVATE = "declared-clip", "declared-noise", "release-check"
"""Checks of the declared noise; with a finding of one, a message counts as one without noise."""


@dataclass(frozen=True, kw_only=True)
class Released:
    """What leaves.

    Attributes:
        tensors: the message's tensors by name, with the guard's noise if it adds any; None for metrics alone.
        metrics: its metrics as plain numbers, lists and mappings, in the order of their names.
        noised: whether the guard added noise.
        examples: the number of training examples that the client reports; None if it reports none.
    """

    tensors: Mapping[str, Array] | None
    metrics: Mapping[str, Any]
    noised: bool
    examples: int | None = None


class Guard:
    """Checks every message of a site under its policy, and keeps the evidence.

    Nothing leaves unless all of this was done without an error: the policy was read, every check was made or may be
    left out, the budget allows the message, and the entry ``released`` is on the disk. Any error is a refusal.

    Args:
        policy: path of the policy, which is read again for each message, so that a change takes effect at once.
        clock: seconds since 1970.
    """

    def __init__(self, policy: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.policy = Path(policy)
        self.clock = clock
        self._log: ChainedLog | None = None
        self._ledger = Ledger()
        self._one_at_a_time = threading.Lock()

    def release(self, message: Message) -> Released:
        """What may leave of a message.

        Raises:
            RefusedError: nothing of it may leave; one line says why.
        """
        try:
            with self._one_at_a_time:
                return self._released(message)
        except RefusedError:
            raise
        except (InputError, OSError) as error:  # of the site's own files
            raise RefusedError([reason_of(error)]) from error
        except Exception as error:  # whatever goes wrong, nothing leaves; no log has it, so its text is not repeated
            raise RefusedError([f"an error of the guard, {type(error).__name__}"]) from error

    def _released(self, message: Message) -> Released:
        policy = read_policy(self.policy)
        folder = Path(policy.evidence)
        if self._log is None or self._log.path.parent != folder:
            self._log = ChainedLog(folder)
            self._ledger = Ledger()
        with self._log.locked():
            self._ledger.count(self._log.entries)
        # The message is the client's: from here on only a copy of it is looked at, which nobody else holds.
        job, number, outcome = _heading(message)
        copy = Message(job=job, round=number)
        try:
            if not outcome.reasons:
                try:
                    copy = own_copy(with_own_data(message, policy), job=job, round=number)
                except Exception as error:  # of the message; the log says why it is refused
                    outcome.reasons.append(reason_of(error))
            content = _Content(copy)
            if not outcome.reasons:
                outcome = _checked(copy, policy, first=self._ledger.is_first(copy.job))
        except BaseException as error:  # an exit or an interruption, which goes on once the log has the refusal
            with contextlib.suppress(Exception):  # of the entry; the first one goes on
                outcome.reasons.append(f"{type(error).__name__} while the message was read and checked")
                self._logged(copy, policy, self._log, outcome, _Content(copy))
            raise
        leaving = self._logged(copy, policy, self._log, outcome, content)
        # The next round's received model is compared with that of a round whose message left.
        if policy.received.is_compared and copy.sent is not None and copy.received is not None:
            keep_round(copy, policy)
        return leaving

    def _logged(
        self, message: Message, policy: Policy, log: ChainedLog, outcome: CheckOutcomes, content: "_Content"
    ) -> Released:
        """Decides by the log as it is now, which no other guard changes meanwhile."""
        with log.locked():
            self._ledger.count(log.entries)
            return self._decided(message, policy, log, outcome, content)

    def _decided(
        self, message: Message, policy: Policy, log: ChainedLog, outcome: CheckOutcomes, content: "_Content"
    ) -> Released:
        """Decides with the budget, writes the entry, and gives what leaves."""
        now = self.clock()
        last_time = log.entries[-1]["time"] if log.entries else -math.inf
        # A clock that was set back would make the order of the log's entries a lie.
        if now < last_time:
            outcome.reasons.append(f"the clock is {last_time - now:.3f} seconds behind the last entry of the log")
        noised = "noise" in outcome.actions.values() and message.sent is not None
        precision = precision_of(policy, declared=_is_private(message, policy, outcome), added=noised)
        if not outcome.reasons:
            outcome.reasons += self._ledger.overdrawn(policy.budget, message, precision)
        tensors = None
        metrics: dict[str, Any] = {}
        if not outcome.reasons:
            try:
                metrics = dict(message.metrics)
                require(holds_numbers_alone(metrics), "numbers as metrics", "something else", "Send numbers.")
                if message.sent is not None:
                    tensors = _noised(message, policy) if noised else dict(message.tensors)
            except Exception as error:
                outcome.reasons.append(reason_of(error))
        content_hash = None
        if tensors is not None:
            # Of what leaves: the hash that was computed meanwhile is that of the message without noise.
            content_hash = tensors_hash(tensors) if noised else content.hash()
        entry = decision_entry(
            message,
            policy,
            outcome,
            time=max(now, last_time),
            content_hash=content_hash,
            noised=noised,
            precision=precision,
        )
        # Nothing leaves before the disk has the entry.
        try:
            number = log.append(entry)["number"]
        except (OSError, InputError) as error:
            raise RefusedError([f"the log could not be written: {reason_of(error)}"]) from error
        if outcome.reasons:
            raise RefusedError(outcome.reasons, number)
        return Released(tensors=tensors, metrics=metrics, examples=message.examples, noised=noised)


def _heading(message: Message) -> tuple[str, int, CheckOutcomes]:
    """Job and round as the log can hold them, and why the message is refused if it has others."""
    outcome = CheckOutcomes()
    # Each is read once: what the sender's object says a second time may be something else.
    job_of_message = message.job
    round_of_message = message.round
    job = shown(job_of_message, _LONGEST_JOB)
    if job != job_of_message:
        outcome.reasons.append(f"the name of the job is no text of at most {_LONGEST_JOB} characters")
    if isinstance(round_of_message, int | np.integer) and not isinstance(round_of_message, bool):
        number = int(round_of_message)
        if -(2**63) <= number < 2**63:
            return job, number, outcome
    outcome.reasons.append("the round is no whole number of 64 bits")
    return job, -1, outcome


class _Content:
    """Hash of a message's tensors, which another thread computes while the message is checked."""

    def __init__(self, message: Message) -> None:
        self._hashes: list[str] = []
        self._tensors: dict[str, Array] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        with contextlib.suppress(Exception):  # what is no array, the checks find
            self._tensors = message.tensors
            self._thread.start()

    def _run(self) -> None:
        self._hashes.append(tensors_hash(self._tensors))

    def hash(self) -> str:
        """The hash, once it is there; computed here if the thread failed."""
        if self._thread.ident is not None:  # it was started
            self._thread.join()
        if self._hashes:
            return self._hashes[0]
        return tensors_hash(self._tensors)


def _is_private(message: Message, policy: Policy, outcome: CheckOutcomes) -> bool:
    """Whether every tensor has the declared noise, as far as the checks see."""
    if message.sent is None or policy.privacy is None or outcome.reasons:
        return False
    for name, measurement in outcome.measured.items():
        if name in _PRIVATE and measurement.found:
            return False
    # One tensor without noise gives away what the noise on the others hides.
    return private_tensors(message, policy.privacy).keys() == message.tensors.keys()


def _checked(message: Message, policy: Policy, *, first: bool) -> CheckOutcomes:
    """All checks of a message; an error of one is a reason to refuse, and so is a plug-in that cannot be used."""
    outcome = CheckOutcomes()
    try:
        checks = checks_to_make()
    except InputError as error:
        outcome.reasons.append(reason_of(error))
        return outcome
    for name, kind in checks.items():
        check = kind()
        try:
            measurement = check.measure(message, policy, first=first)
        except NotMadeError as reason:
            # What was not made is no finding, where neither the policy nor the check itself demands it.
            outcome.not_made[name] = shown(str(reason), 300)
            if reason.statistics:
                outcome.statistics[name] = reason.statistics
            if name in policy.required or not kind.may_lack:
                outcome.reasons.append(f"the check {name} could not be made: {reason}")
            continue
        except Exception as error:  # fails closed: a check that breaks off could hide a finding
            outcome.reasons.append(f"the check {name} failed: {reason_of(error)}")
            continue
        if measurement is not None:
            outcome.measured[name] = measurement
            if measurement.statistics:
                outcome.statistics[name] = measurement.statistics
            _act(outcome, kind, measurement, policy)
        elif name in policy.required and check.concerns(message, policy, first=first):
            outcome.reasons.append(f"the check {name} is required and measured nothing")
    return outcome


def _act(outcome: CheckOutcomes, kind: type[Check], measurement: Measurement, policy: Policy) -> None:
    """Notes what the policy has a finding do."""
    if not measurement.found:
        return
    action = policy.action(kind.name, kind.action)
    outcome.actions[kind.name] = action
    if action == "refuse":
        outcome.reasons.append(f"{kind.name}: {measurement.sentence}")


def _noised(message: Message, policy: Policy) -> dict[str, Array]:
    """The message with its changes clipped and with Gaussian noise, drawn from the system's randomness.

    Raises:
        InputError: the policy has no noise, or a tensor holds no floating-point numbers, which get none.
    """
    noise = policy.noise
    not_changed = [name for name in message.tensors if name not in message.changes]
    if noise is None or not_changed:
        obstacle = "no section noise"
        if noise is not None:
            obstacle = f"{not_changed[0][:80]!r}, which holds whole numbers"
        raise InputError(
            expected="noise on all tensors", found=obstacle, way_out="Refuse instead, or send fewer tensors."
        )
    # Clipped and noised anew, whatever noise the client added: the guard's own is what counts.
    changes = clipped_with_noise(message.changes, clip=noise.clip, scale=noise.scale)
    leaving = message.with_changes(changes)
    is_finite = all(np.isfinite(value).all() for value in leaving.values())
    require(is_finite, "finite numbers with the noise", "others", "Send a type of numbers with a larger range.")
    return leaving
