"""Guardrail: a client attacks its own update, and does not send it if the attack succeeds."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError, require
from fedleak.core.view import RoundView
from fedleak.defenses.base import Defense, OwnView, Update, hold_back
from fedleak.evaluation.registry import make_attack
from fedleak.evaluation.runner import infer


class Guardrail(Defense):
    """Client-side check that attacks the update before it is sent, and holds it back if the AUC exceeds a limit.

    Proposed by this project. The client knows what the server will know (the global model, the served items, the update
    after all other defences and their public parameters) and its own interactions, so it can score the attack. The
    check measures the leakage itself, whether the features are manipulated or honest.

    Limitations:

    * It covers the given attacks at their strength; the server may have a better one.
    * The decision depends on the interactions. Silence is informative, and local DP does not account for it.
    * A client has few items: without leakage its AUC still varies around 0.5, so some clients hold back needlessly.

    Clients are attacked in one batch; an attack's draws are then those of the cohort, not of one client.

    Args:
        limit: largest AUC of its own reconstruction at which a client still sends.
        attacks: attacks, of which the most successful one counts; those that do not fit the recording are skipped.
            Names or class paths, or a mapping of these to arguments, such as ``{list-posterior: {prior: uniform}}``.

    Raises:
        InputError: the limit is not an AUC, there is no attack, or one does not infer interactions.
    """

    def __init__(self, *, limit: float = 0.6, attacks: dict[str, dict[str, Any]] | Sequence[Attack | str]) -> None:
        require(
            0 <= limit <= 1 and attacks,
            "Guardrail.limit in [0, 1] and at least one attack",
            f"{limit:g} and {len(attacks)} attacks",
            "0.5 is guessing; a client with few items sometimes exceeds 0.6 by chance.",
        )
        self.limit = limit
        if isinstance(attacks, dict):
            self.attacks = [make_attack(name, arguments) for name, arguments in attacks.items()]
        else:
            self.attacks = [make_attack(attack) for attack in attacks]
        for attack in self.attacks:
            _check_infers_interactions(attack)

    def review(self, update: Update, own_view: OwnView, generators: Callable[[int], torch.Generator]) -> Update:
        view, labels = own_view(update)
        if not view.victims:
            return update
        # A client whose interactions are all equal has no AUC, and sends.
        return hold_back(update, ~(self.exposure(view, labels, generators(0)) > self.limit))

    def exposure(self, view: RoundView, labels: Tensor, generator: torch.Generator) -> Tensor:
        """``(V,)`` float64 largest AUC of the attacks on clients with labels ``(V, R)``, NaN where these are all equal.

        Raises:
            InputError: no attack fits what the clients send.
        """
        aucs, refusals = [], []
        for attack in self.attacks:
            try:
                estimate = infer(attack, view, generator)
            except ViewError as error:
                refusals.append(str(error))
                continue
            aucs.append(estimate.score(view, {"labels": labels}).metrics["auc"])
        require(
            aucs,
            "a Guardrail with an attack that fits the clients' updates",
            "; ".join(refusals),
            "Add an attack of this learner's family, e.g. list-posterior for rankings.",
        )
        return torch.stack(aucs).amax(0)


def _check_infers_interactions(attack: Attack) -> None:
    """Checks that a client can score the attack by its own interactions, which are all the truth that it has here."""
    estimates = attack.estimates
    require(
        estimates.truth == ("labels",) and "auc" in estimates.metrics,
        "a Guardrail with attacks that infer with which items a client interacted",
        f"{attack.name}, which infers {estimates.inferred}",
        "Choose others, e.g. list-posterior for rankings; fedleak list says what each infers.",
    )
