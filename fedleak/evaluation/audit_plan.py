"""Plan of an audit: what it attacks, on whom and in which order, checked once before anything runs."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from fedleak.core.attack import Attack
from fedleak.core.errors import require
from fedleak.core.history import History
from fedleak.evaluation.drawn_victims import MANY
from fedleak.evaluation.message_selection import MessageSelection
from fedleak.evaluation.registry import check_distinct
from fedleak.evaluation.steps.step import RecordingStep
from fedleak.recordings.control import Control, ControlRecording
from fedleak.recordings.recording import Recording
from fedleak.recordings.what_if import DefendedRecording

Slow = Literal["all", "few", "none"]
"""Clients on whom attacks run that take minutes."""
JobKey = tuple[str, int | None, int]
"""Attack, round and view of a job, see `Job`."""
_LARGEST_SEED = 2**63 - 1
"""Of torch's generators: a signed integer of 64 bits."""
_MOST_NAMES = 6
"""Names and numbers that a line of `AuditPlan.described` lists."""


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """What an audit does: attacks on a recording, on whom, in which rounds, and what is computed next to them.

    How it runs (in which processes, with which estimates of an earlier start) is no part of it: it decides no score but
    for last digits, which depend on the processor and on the number of threads.

    Attributes:
        recording: what the server saw.
        attacks: attacks to run; those that do not fit the recording are listed with the reason.
        seed: seed of the attacks' draws.
        setting: cell of a table that the scores belong to; None for the data, the learner and the control.
        victims: number of clients to attack, drawn at random; None for all.
        limits: largest number of victims by attack, drawn at random within the first rounds.
        rounds: numbers of the rounds to attack, from 0; None for all.
        by_round: whether each round has its own rows, with the setting ``round``, from 1.
        history: whether attacks get the earlier messages of the same victims.
        messages: selection of messages for attacks on all messages together.
        slow: whether attacks that take minutes run on ``all`` clients, on a ``few`` of the first round, or on none.
        minutes: time for all of it, most of it for attacks; those that do not fit in are missing. None for no bound.
        steps: comparisons next to the attacks, which need only the recording.
        describe: whether to describe the updates, to bound what any attack could infer from them, and to leave out what
            does not fit the recording.
        check_learner: whether to compare simulated with recorded updates, if an attack simulates clients.
        separate: whether an attack that ends in an exception is listed as missing, and the others go on.
        victims_per_view: victims that are attacked at once; None for a number that suits the learner.

    Raises:
        InputError: a value is out of range, a round is not recorded, or results could not be distinguished.

    Example:
        >>> from tempfile import mkdtemp
        >>> from fedleak import AuditPlan, Recording
        >>> from fedleak.attacks import Linkability
        >>> from fedleak_recorder import Recorder
        >>> folder = mkdtemp()
        >>> with Recorder(folder, holds="deltas") as recorder:
        ...     sent = {"a": ({"weight": [3.0, 4.0]}, 10), "b": ({"weight": [0.0, 1.0]}, 30)}
        ...     recorder.round(0, {"weight": [0.0, 0.0]}, sent)
        >>> plan = AuditPlan(recording=Recording(folder), attacks=[Linkability()], victims=1)
        >>> plan.described()["clients"]
        '1 of 2 pseudonyms, drawn at random with seed 0; attacks on all messages together get all of them, up to 65,536'
    """

    recording: Recording
    attacks: Sequence[Attack]
    seed: int = 0
    setting: Mapping[str, Any] | None = None
    victims: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    rounds: Sequence[int] | None = None
    by_round: bool = False
    history: bool = False
    messages: MessageSelection = MessageSelection()  # noqa: RUF009 - frozen
    slow: Slow = "none"
    minutes: float | None = None
    steps: Sequence[RecordingStep] = ()
    describe: bool = True
    check_learner: bool = True
    separate: bool = True
    victims_per_view: int | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        """Checks the values."""
        require(
            0 <= self.seed <= _LARGEST_SEED,
            "a seed from 0 to 2**63 - 1",
            self.seed,
            "Set a seed in this range.",
        )
        require(
            self.victims is None or self.victims >= 1,
            "at least 1 victim",
            self.victims,
            "Set at least 1, or None for all clients.",
        )
        require(
            self.minutes is None or self.minutes > 0,
            "minutes above 0",
            self.minutes,
            "Set a number, e.g. 5, or None for no bound.",
        )
        require(
            self.slow in get_args(Slow),
            f"slow among {', '.join(get_args(Slow))}",
            repr(self.slow),
            "Choose one of them.",
        )
        recorded = self.recording.rounds
        missing = [number for number in self.rounds or () if number not in recorded]
        require(
            not missing,
            f"rounds among {_listed(recorded)}",
            _listed(missing),
            "Name recorded rounds, or none for all.",
        )
        names: set[str] = set()
        for attack in self.attacks:
            names.update(attack.names())
        unknown = sorted(set(self.limits) - names)
        require(not unknown, "limits of attacks of the plan", ", ".join(unknown), "Name attacks that it runs.")
        check_distinct([type(attack) for attack in self.attacks])

    @property
    def attacked_rounds(self) -> list[int]:
        """Ascending numbers of the rounds to attack."""
        recorded = self.recording.rounds
        if self.rounds is None:
            return recorded
        return sorted(set(self.rounds) & set(recorded))

    @property
    def cell(self) -> Mapping[str, Any]:
        """Setting columns of the scores."""
        if self.setting is None:
            return default_setting(self.recording)
        return self.setting

    def with_attacks(self, attacks: Sequence[Attack]) -> Self:
        """The plan with some of its attacks."""
        names: set[str] = set()
        for attack in attacks:
            names.update(attack.names())
        limits = {name: most for name, most in self.limits.items() if name in names}
        return dataclasses.replace(self, attacks=attacks, limits=limits)

    def described(self) -> dict[str, str]:
        """What the plan does, one clause by what it is about, as a page prints it under "How it was audited"."""
        clauses = {
            "attacks": self._attacks_in_words(),
            "clients": self._clients_in_words(),
            "rounds": self._rounds_in_words(),
            "slow attacks": _SLOW_IN_WORDS[self.slow],
            "time": self._time_in_words(),
            "seed": f"{self.seed}, of the attacks' draws",
        }
        few = self._on_few_clients()
        if few:
            clauses["on a few clients of the first round"] = ", ".join(few)
        if self.messages != MessageSelection():
            clauses["messages"] = str(self.messages)
        if isinstance(self.recording, ControlRecording):
            clauses["control"] = _CONTROLS_IN_WORDS[self.recording.control]
        if isinstance(self.recording, DefendedRecording) and self.recording.defenses:
            clauses["defences"] = ", ".join(type(defense).__name__ for defense in self.recording.defenses)
        if not self.check_learner:
            clauses["learner"] = "not compared with the recorded updates"
        return clauses

    def _attacks_in_words(self) -> str:
        if len(self.attacks) <= _MOST_NAMES:
            words = ", ".join(attack_key(attack) for attack in self.attacks)
        else:
            questions = {attack.family for attack in self.attacks}
            words = f"{len(self.attacks)} asked for, on {len(questions)} questions"
        if self.limits:
            limits = [f"{name} on at most {most} clients" for name, most in self.limits.items()]
            words += f"; {', '.join(limits)}"
        return words

    def _clients_in_words(self) -> str:
        """Whom attacks on one round attack; a client may have another pseudonym in each round."""
        senders: set[int] = set()
        for number in self.attacked_rounds:
            senders.update(self.recording.pseudonyms(number))
        if self.victims is None or self.victims >= len(senders):
            return f"all {len(senders)} pseudonyms"
        words = f"{self.victims} of {len(senders)} pseudonyms, drawn at random with seed {self.seed}"
        if any(of_all_messages(attack) for attack in self.attacks):
            words += f"; attacks on all messages together get all of them, up to {MANY:,}"
        return words

    def _on_few_clients(self) -> list[str]:
        """Attacks that are not slow, and run on a few clients nevertheless, with the number of these."""
        # Slow attacks have a clause of their own.
        few = []
        for attack in self.attacks:
            if self.slow != "all" and attack.audited_victims is not None and not attack.slow:
                most = min(attack.audited_victims, self.victims or attack.audited_victims)
                few.append(f"{attack.family}/{attack.name} (at most {most})")
        return few

    def _time_in_words(self) -> str:
        if self.minutes is None:
            return "no bound"
        return f"about {self.minutes:g} minutes; attacks that do not fit in are left out"

    def _rounds_in_words(self) -> str:
        recorded = self.recording.rounds
        words = f"all {len(recorded)}"
        if self.rounds is not None:
            words = f"number {_listed(self.attacked_rounds)}, of {len(recorded)} recorded"
        if self.history:
            return f"{words}, with the earlier messages of the same clients"
        return words


_CONTROLS_IN_WORDS: dict[Control, str] = {
    "others": "in the place of each update, that of another client of its group, or noise where there is no other",
    "noise": "in the place of each update, noise of its size",
    "priors": "priors that say nothing of the clients",
}
_SLOW_IN_WORDS = {
    "all": "on all clients",
    "few": "on a few clients of the first round",
    "none": "left out",
}


@dataclass(frozen=True)
class Job:
    """One attack on one view of a recording: what an engine may run by itself.

    Attributes:
        attack: name of the attack, with its family.
        round: number of the round; None for all messages of the recording together.
        view: place of the view within its round, or of the group of attacks on all messages.
        victims: number of victims.
        cost: declared cost of the attack for each victim, as text.
        needs: names of what the view must have.
    """

    attack: str
    round: int | None
    view: int
    victims: int
    cost: str
    needs: tuple[str, ...]

    @property
    def key(self) -> JobKey:
        """What distinguishes the job within its plan."""
        return self.attack, self.round, self.view


def job_of(attack: Attack, *, round: int | None, view: int, victims: int) -> Job:
    """The job of an attack on a view with some victims."""
    needs = []
    for need in attack.threat_model.needs:
        # A need is the name of a field, or a kind of algorithm.
        needs.append(need if isinstance(need, str) else need.__name__)
    return Job(attack_key(attack), round, view, victims, attack.cost, tuple(needs))


def attack_key(attack: Attack) -> str:
    """Family and name of an attack, which are unique within a plan."""
    return f"{attack.family}/{attack.name}"


def of_all_messages(attack: Attack) -> bool:
    """Whether an attack reads all messages of a recording together."""
    return attack.view is History


def default_setting(recording: Recording) -> dict[str, Any]:
    """Setting of a recording that is no cell of a table: its data, a learner other than FNCF, and the control."""
    manifest = recording.manifest
    setting = {"data": manifest.data["name"]}
    if manifest.learner is not None and manifest.learner["name"] != "fncf":
        setting["learner"] = manifest.learner["name"]
    if isinstance(recording, ControlRecording):
        setting["control"] = recording.control
    return setting


def _listed(numbers: Sequence[int]) -> str:
    """The first of some numbers."""
    words = ", ".join(map(str, numbers[:_MOST_NAMES]))
    if len(numbers) > _MOST_NAMES:
        return f"{words}, ..."
    return words
