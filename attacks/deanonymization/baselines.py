"""What any attack on anonymity must beat."""

import torch

from attacks.base import Attack, ServerView, ThreatModel
from attacks.deanonymization.estimates import PAIRS, IdentityEstimate, MatchingEstimate, asked_pairs
from attacks.deanonymization.messages import USERS, known_view


class IdentityChance(Attack):
    """Every user with the same probability, in random order (section 4.4, re-identification (i)).

    Threat model: a server that knows who takes part and looks at no message.
    """

    name = "chance"
    threat_model = ThreatModel(sees="nothing of the devices", knows="who takes part", needs=("known",))
    estimates = IdentityEstimate

    def run(self, view: ServerView, *, generator: torch.Generator) -> IdentityEstimate:
        """See `Attack.run`."""
        users = torch.unique(known_view(view).auxiliary[USERS])
        return IdentityEstimate(scores=torch.rand(view.victims, len(users), generator=generator), users=users)


class MatchingChance(Attack):
    """A uniform number for every pair (section 4.4, matching (i)).

    Threat model: a server that looks at no message.
    """

    name = "matching-chance"
    threat_model = ThreatModel(sees="nothing of the devices", knows="nothing", needs=(f"auxiliary:{PAIRS}",))
    estimates = MatchingEstimate

    def run(self, view: ServerView, *, generator: torch.Generator) -> MatchingEstimate:
        """See `Attack.run`."""
        return MatchingEstimate(scores=torch.rand(len(asked_pairs(view)), generator=generator))
