"""Why attacks did not run or were not scored: the kind of reason, what lacks, and what to do about it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from fedleak.client.adapter_shape import MARK, AdapterShape
from fedleak.core.errors import InputError
from fedleak_recorder.format import ATTRIBUTE_PSEUDONYMS, CANARY_PSEUDONYMS

if TYPE_CHECKING:
    from fedleak.core.attack import Attack

Kind = Literal[
    "unscored",  # it would run: the recording lacks nothing but the true answers
    "slow",  # it takes minutes, and was not asked for
    "late",  # the time of the audit was not enough
    "under-defences",  # it ran on the recording, but takes too long to be repeated under defences
    "lacking",  # the recording lacks what it needs
    "other-clients",  # it is on clients that run another kind of algorithm
    "quadratic",  # it would need more memory than there is
    "unread",  # the messages of the recording cannot be read together
    "misfit",  # it found that what was recorded does not fit it
    "defect",  # it ended in an exception
    "lonely-baseline",  # no attack that it would be compared with ran
    "inapplicable",  # its question cannot be asked of the recorded system
    "unknown",  # stored by an earlier version, which kept the sentence alone
]
"""Kinds of reasons."""
_DISTANCE: Mapping[Kind, int] = {"unscored": 0, "slow": 1, "late": 1, "lacking": 2, "inapplicable": 4}
"""How far an attack is from a score: what else to record comes after what is only to be waited for."""
_FAR = 3
"""The distance of all other kinds: no data that could be added help."""
_LEARNER = "the clients' training algorithm"
_INAPPLICABLE = "the question does not apply: "
_REMEDIES = {
    "algorithm": "add `learner:` to the manifest, or give --learner my_package.MyLearner",
    "known": "give the adversary devices of its own: known_pseudonyms and known_users in `auxiliary:`",
    "served": "give an array `served` with the items shown to each client",
    "lists": "give an array `lists` with the ranked list of each item",
    "features": "give an array `features` with the features of the items as sent",
    "sent_in": "record two rounds or more",
}
"""What to do about a field that a view lacks."""
_NO_SHAPES: Mapping[str, tuple[int, ...]] = {}
_PLAIN = {
    "algorithm": _LEARNER,
    "learner": _LEARNER,
    "known": "devices of the server's own, whose users it knows",
    "pairs": "devices of the server's own, whose users it knows",
    "served": "the items that the server showed",
    "lists": "the ranked lists that it showed",
    "features": "the features of the items",
    "sent_in": "several rounds",
    "participants": "sums of updates",
    "model": "the global model",
    "releases": "noise or clipping that the clients declare",
    "deltas": "the updates of the parameters in question",
    "auxiliary": "data of the server's own",
}
"""Fields of a view in plain words."""
_PLAIN_DATA = {
    "candidates": "a pool of records of which the clients hold some",
    "candidate_labels": "a pool of records of which the clients hold some",
    "images": "labelled examples of the server's own",
    "labels": "labelled examples of the server's own",
    "prior_features": "examples of people who are no clients",
    "prior_labels": "examples of people who are no clients",
    "prior_users": "examples of people who are no clients",
    "columns": "the columns of the table",
    "public_interactions": "interactions of people who are no clients",
    ATTRIBUTE_PSEUDONYMS: "updates of people whose attributes the server knows",
    CANARY_PSEUDONYMS: "canaries",
}
"""Data of the server in plain words, by their entry of `auxiliary:`."""


@dataclass(frozen=True)
class Reason:
    """A reason is why one attack gave no result.

    Whoever decides something by a reason asks its fields; the sentence is for people, and is made at the end.

    Attributes:
        kind: see `Kind`.
        lacks: what lacks, each in plain words.
        way_out: what to do about it; empty for nothing.
        says: what else there is to say, where the kind and what lacks do not say all.

    Example:
        >>> reason = Reason("lacking", ("several rounds",), "record two rounds or more")
        >>> reason.kind, str(reason)
        ('lacking', 'the recording lacks several rounds; record two rounds or more')
    """

    kind: Kind
    lacks: tuple[str, ...] = ()
    way_out: str = ""
    says: str = ""

    @property
    def problem(self) -> str:
        """The sentence without remarks and without the way out."""
        things = ", ".join(self.lacks)
        if self.kind == "lacking":
            return f"the recording lacks {things}"
        if self.kind == "other-clients":
            return f"it needs {things}"
        if self.kind == "unscored":
            return f"without {things} in truth/ of the recording it cannot be scored"
        if self.kind == "inapplicable":
            return f"{_INAPPLICABLE}{self.says}"
        return self.says

    @property
    def sentence(self) -> str:
        """The whole reason, as people read it: without a capital and without a full stop."""
        parts = [self.problem]
        if self.kind == "other-clients":  # whose clients they are instead
            parts.append(self.says)
        parts.append(self.way_out)
        return "; ".join(part for part in parts if part)

    @property
    def distance(self) -> tuple[int, bool, int]:
        """How far the attack is from a score, less for nearer: the kind, then the learner, then how much lacks."""
        return _DISTANCE.get(self.kind, _FAR), _LEARNER not in self.lacks, len(self.lacks)

    def __str__(self) -> str:
        """The sentence."""
        return self.sentence


def reason_to_plain(reason: Reason) -> dict[str, Any]:
    """Fields of a reason, as JSON can hold them."""
    return {**asdict(reason), "lacks": list(reason.lacks)}


def reason_of_plain(content: Any) -> Reason:
    """The reason of what `reason_to_plain` gave, or of the sentence that earlier versions stored.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(content, str):
        return reason_of_sentence(content)
    if not isinstance(content, Mapping) or content.keys() != Reason.__dataclass_fields__.keys():
        raise ValueError("a reason with other fields")
    kind = content["kind"]
    lacks = content["lacks"]
    way_out = content["way_out"]
    says = content["says"]
    if kind not in get_args(Kind) or not isinstance(lacks, list):
        raise ValueError("a reason of another kind")
    if not all(isinstance(text, str) for text in (*lacks, way_out, says)):
        raise ValueError("a reason with a value that is no text")
    return Reason(kind, tuple(lacks), way_out, says)


def reason_of_sentence(sentence: str) -> Reason:
    """The reason of a sentence that was stored without its fields: in results.json, or by an earlier version.

    Its kind is unknown, but for one: the pages of old runs would otherwise list as not measured what does not apply.
    """
    if sentence.startswith(_INAPPLICABLE):
        return Reason("inapplicable", says=sentence.removeprefix(_INAPPLICABLE))
    return Reason("unknown", says=sentence)


def reasons(missing: Mapping[str, Reason]) -> list[str]:
    """One sentence per reason for which attacks could not run."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in missing.items():
        names[reason.sentence].append(name)
    return [f"{', '.join(of_reason)} could not run: {sentence}." for sentence, of_reason in names.items()]


def nearest_reason(missing: Mapping[str, Reason]) -> Reason:
    """Reason of the attack that lacks least; ``missing`` has the reason by attack, and is not empty.

    The order: only the ground truth is lacking, only time, the learner, other data, of which fewer come first; then
    attacks on clients of another kind, and last those whose question does not apply. Of equals, that of most attacks.
    """
    all_reasons = list(missing.values())
    return min(all_reasons, key=lambda reason: (*reason.distance, -all_reasons.count(reason)))


def nothing_scored(missing: Mapping[str, Reason], attacks: Sequence["Attack"]) -> InputError:
    """Error for a recording on which none of `attacks` could be scored; `missing` holds the reason by attack."""
    nearest = "no victims"
    if missing:
        # A baseline alone would score no attack.
        baselines = {attack.name for attack in attacks if attack.baseline}
        of_attacks = {name: reason for name, reason in missing.items() if name not in baselines}
        least = nearest_reason(of_attacks or missing)
        names = ", ".join(name for name, reason in missing.items() if reason == least)
        nearest = f"none; the nearest is {names}: {least}"
    return InputError(
        expected="a recording that at least one attack can be scored on",
        found=nearest,
        way_out="Name the clients' learner in the recording's manifest and keep its truth/"
        " (docs/reference/recording-format.md), or run an attack of your own: fedleak run DIR --attack PACKAGE.CLASS.",
    )


def lacks(lacking: Sequence[str], shapes: Mapping[str, tuple[int, ...]] = _NO_SHAPES) -> Reason:
    """Reason that a recording lacks needs of an attack: in plain words, and by name what to add to it.

    Args:
        lacking: names of the needs.
        shapes: of the recorded parameters, by which adapters are known that lack their learner.
    """
    # A need is the name of a field, or of an entry of it: ``FIELD:ENTRY``.
    by_field: dict[str, list[str]] = defaultdict(list)
    for need in lacking:
        field, _, entry = need.partition(":")
        by_field[field].append(entry)
    plain: list[str] = []
    ways_out: list[str] = []
    for field, entries in by_field.items():
        plain += [_PLAIN_DATA.get(entry, _PLAIN.get(field, field)) for entry in entries]
        remedy = _remedy(field, entries)
        if field in ("algorithm", "learner"):
            remedy = learner_of_adapters(shapes) or remedy
        if remedy is not None:
            ways_out.append(remedy)
    return Reason("lacking", tuple(dict.fromkeys(plain)), "; ".join(dict.fromkeys(ways_out)))


def learner_of_adapters(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The options that name the learner of recorded adapters; empty where the parameters are no adapters.

    Example:
        >>> shapes = {"0.query.lora_A.weight": (8, 384), "0.query.lora_B.weight": (384, 8), "classifier.bias": (2,)}
        >>> "--learner.adapter.rank 8 --learner.adapter.targets" in learner_of_adapters(shapes)
        True
    """
    adapters = AdapterShape.of(shapes)
    if len(adapters.ranks) != 1:
        return ""
    options = f'--learner.adapter.rank {min(adapters.ranks)} --learner.adapter.targets "[{adapters.ends}]"'
    # Layers that are trained whole next to adapters are the new heads of classifiers.
    if any(MARK not in name for name in shapes):
        options += " --learner.task sequence-classification"
    given = f"give --learner Pretrained --learner.path DIR {options}"
    return f"{given}, with the folder DIR of the frozen network, or add `learner:` to the manifest"


def slow_reason(attack: "Attack") -> Reason:
    """Reason why an attack was left out that takes minutes."""
    return Reason(
        "slow",
        way_out=f"add --slow to run it on {attack.audited_victims} clients",
        says=f"it is slow ({attack.cost})",
    )


def _remedy(field: str, entries: list[str]) -> str | None:
    """What to do about a field or its entries; None if nothing is known."""
    if entries == [CANARY_PSEUDONYMS]:
        return "train with the defence Canaries, see docs/audit/canaries.md"
    if field == "auxiliary":
        return f"add {', '.join(entries)} to the server's data (`auxiliary:`)"
    if field == "deltas" and any(entries):
        return f"record the updates of {', '.join(entries)}"
    if field == "learner":
        return f"{_REMEDIES['algorithm']} (one of the kind {', '.join(entries)})"
    # Pairs are of messages of known devices.
    if field == "pairs":
        field = "known"
    return _REMEDIES.get(field)
