"""Why an attack cannot run on a recording or be scored, and what would change that."""

from collections.abc import Mapping

from torch import Tensor

from attacks.base import Attack
from protocol.view import CANARY_PSEUDONYMS, ServerView

_UNSCORED = "without "
_REMEDIES = {
    "learner": "add `learner:` to the manifest, or give --learner my_package.MyLearner",
    "known": "give the adversary devices of its own: known_pseudonyms and known_users in `auxiliary:`",
    "served": "give an array `served` with the items shown to each client",
    "lists": "give an array `lists` with the ranked list of each item",
    "features": "give an array `features` with the features of the items as sent",
    "sent_in": "record two rounds or more",
}
"""What to do about a field that a view lacks."""


def unfit(attack: Attack, view: ServerView, truth: Mapping[str, Tensor]) -> str | None:
    """Reason why an attack cannot run on a view or be scored, with the remedy; None if it can."""
    lacking = [name.partition(":") for name in view.missing(attack.threat_model.needs)]
    if lacking:
        needs = [f"{head} ({entry})" if entry else head for head, _, entry in lacking]
        heads: dict[str, list[str]] = {}
        for head, _, entry in lacking:
            heads.setdefault(head, []).append(entry)
        ways_out = [remedy for head, entries in heads.items() if (remedy := _remedy(view, head, entries))]
        return "; ".join([f"the recording lacks {', '.join(needs)}", *dict.fromkeys(ways_out)])
    unknown = ", ".join(name for name in attack.estimates.truth if name not in truth)
    if not unknown:
        return None
    added = f"add {unknown} to the truth of each client (docs/recording-format.md)"
    way_out = added if truth else "the recording was published without truth/, audit it where that is"
    return f"{_UNSCORED}{unknown} in truth/ of the recording it cannot be scored; {way_out}"


def is_unscored(reason: str) -> bool:
    """Whether an attack lacks nothing but ground truth."""
    return reason.partition("; ")[0].startswith(_UNSCORED)


def _remedy(view: ServerView, head: str, entries: list[str]) -> str | None:
    """What to do about a field or its entries; None if the clients have another learner, or nothing is known."""
    if head == "learner" and view.learner is not None:
        return None
    if entries == [CANARY_PSEUDONYMS]:
        return "train with the defence Canaries, see docs/canaries.md"
    if head == "auxiliary":
        return f"add {', '.join(entries)} to the server's data (`auxiliary:`)"
    return _REMEDIES.get("known" if head == "pairs" else head)
