"""Why an attack cannot run on a recording or be scored, and what would change that."""

import inspect
import re
from collections.abc import Mapping

from torch import Tensor

from attacks.base import Attack
from attacks.composition.base import CompositionAttack, output_layer
from protocol.errors import ViewError
from protocol.view import CANARY_PSEUDONYMS, View

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


def unfit(attack: Attack, view: View, truth: Mapping[str, Tensor]) -> str | None:
    """Reason why an attack cannot run on a view or be scored, with the remedy; None if it can."""
    kinds = [need for need in attack.threat_model.needs if isinstance(need, type)]
    other = [kind for kind in kinds if not isinstance(view.algorithm, kind)]
    if view.algorithm is not None and other:
        return f"the clients' algorithm, {type(view.algorithm).__name__}, is no {', '.join(map(_described, other))}"
    lacking = [name.partition(":") for name in view.missing(attack.threat_model.needs)]
    if lacking:
        needs = [f"{head} ({entry})" if entry else head for head, _, entry in lacking]
        heads: dict[str, list[str]] = {}
        for head, _, entry in lacking:
            heads.setdefault(head, []).append(entry)
        ways_out = [remedy for head, entries in heads.items() if (remedy := _remedy(head, entries))]
        return "; ".join([f"the recording lacks {', '.join(needs)}", *dict.fromkeys(ways_out)])
    unknown = ", ".join(name for name in attack.estimates.truth if name not in truth)
    if not unknown:
        return _other_classes(view, truth) if isinstance(attack, CompositionAttack) else None
    added = f"add {unknown} to the truth of each client (docs/recording-format.md)"
    way_out = added if truth else "the recording was published without truth/, audit it where that is"
    return f"{_UNSCORED}{unknown} in truth/ of the recording it cannot be scored; {way_out}"


def _described(kind: type) -> str:
    """Name of a kind of algorithm, with the first sentence of its documentation."""
    sentence = re.split("[.;]", inspect.getdoc(kind) or "")[0]
    return f"{kind.__name__} ({sentence[:1].lower()}{sentence[1:]})"


def _other_classes(view: View, truth: Mapping[str, Tensor]) -> str | None:
    """That the model's last layer has other classes than the ground truth counts; None if it has the same."""
    try:
        layer = output_layer(view)
        classes = view.deltas[f"{layer}.bias"].shape[1]
    except (ViewError, KeyError) as error:
        return str(error)
    counted = truth["class_counts"].shape[1]
    if classes == counted:
        return None
    return (
        f"the model's last layer, {layer!r}, has outputs for {classes} classes, and class_counts in truth/ counts"
        f" {counted}; if another layer is the last, give the parameters in the network's order"
    )


def is_unscored(reason: str) -> bool:
    """Whether an attack lacks nothing but ground truth."""
    return reason.partition("; ")[0].startswith(_UNSCORED)


def _remedy(head: str, entries: list[str]) -> str | None:
    """What to do about a field or its entries; None if nothing is known."""
    if entries == [CANARY_PSEUDONYMS]:
        return "train with the defence Canaries, see docs/canaries.md"
    if head == "auxiliary":
        return f"add {', '.join(entries)} to the server's data (`auxiliary:`)"
    return _REMEDIES.get("known" if head == "pairs" else head)
