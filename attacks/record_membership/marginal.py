"""Published attacks that score one candidate at a time, by its loss or its gradient."""

import abc
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.pool import PoolAttack, RoundStatistics, averaged, membership, statistics
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.history import History

_FEDMIA = "FedMIA, arXiv:2402.06289, table 1"
_FLOOR = 1e-8
"""Added to the variance over clients, as in FedMIA's code."""


class _OfRounds(PoolAttack):
    """Base class of scores of one round, that are averaged over rounds or taken from the last."""

    series: ClassVar[bool] = False
    """Whether the score is the mean over all rounds; otherwise it is that of the client's last round."""

    def run(self, view: History, *, generator: torch.Generator) -> RecordMembershipEstimate:
        rounds = [(of_round.senders, self.scores(of_round)) for of_round in statistics(view)]
        if not self.series:
            # Of each client, what its last round gave: later rounds replace earlier ones.
            latest = dict[int, Tensor]()
            for senders, scores in rounds:
                latest |= dict(zip(senders.tolist(), scores, strict=True))
            rounds = [(torch.tensor(list(latest)), torch.stack(list(latest.values())))]
        senders, scores = averaged(rounds)
        return membership(senders, scores, view)

    @abc.abstractmethod
    def scores(self, of_round: RoundStatistics) -> Tensor:
        """``(V, M)`` scores of one round."""


class RecordLoss(_OfRounds):
    """Loss of a candidate under the client's model after its training, in its last round; lower is a member.

    Threat model: passive server that sees each client's update.

    Variants:
        series: the mean loss over all rounds, Loss-Series in FedMIA's table 1.

    References:
        [Yeom18], adversary 1; Blackbox-Loss in [Zhu25], table 1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import RecordLoss
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = RecordLoss()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.71
    """

    name = "record-loss"
    references = (_FEDMIA,)
    variants: ClassVar[Variants] = {"series": {"name": "loss-series", "series": True}}

    def scores(self, of_round: RoundStatistics) -> Tensor:
        return -of_round.loss


class GradientNorm(_OfRounds):
    """Norm of a candidate's gradient at the sent model; lower is a member. It is the same for all clients.

    Threat model: passive server; it needs no update of its own, only the global model, which past updates changed.

    References:
        [Nasr19]; Grad-Norm in [Zhu25], table 1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import GradientNorm
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = GradientNorm()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.54
    """

    name = "gradient-norm"
    references = (_FEDMIA,)
    for_comparison = True  # candidate-fit is at least as good in all 25 cells

    def scores(self, of_round: RoundStatistics) -> Tensor:
        return -of_round.norms.expand(len(of_round.senders), -1)


class GradientCosine(_OfRounds):
    """Cosine of the update and minus a candidate's gradient, in the client's last round.

    Threat model: passive server that sees each client's update.

    Variants:
        average: the mean cosine over all rounds, Avg-Cosine in FedMIA's table 1.

    References:
        [Li23]; Grad-Cosine in [Zhu25], table 1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import GradientCosine
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = GradientCosine()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 3)
        0.755
    """

    name = "gradient-cosine"
    references = (_FEDMIA,)
    variants: ClassVar[Variants] = {"average": {"name": "average-cosine", "series": True}}

    def scores(self, of_round: RoundStatistics) -> Tensor:
        return of_round.cosines


class GradientDifference(_OfRounds):
    """Drop of the update's squared norm without a candidate's gradient, ``|u|^2 - |u - g|^2``, in the last round.

    The update ``u`` is in units of the gradient: divided by the sum of the step sizes.

    Threat model: passive server that sees each client's update.

    Raises:
        ViewError: the clients' optimizer scales gradients.

    References:
        [Li23]; Grad-Diff in [Zhu25], table 1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import GradientDifference
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = GradientDifference()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.66
    """

    name = "gradient-difference"
    references = (_FEDMIA,)
    for_comparison = True  # candidate-fit is at least as good in all 25 cells

    def scores(self, of_round: RoundStatistics) -> Tensor:
        if of_round.step_sums is None:
            raise ViewError("expected clients that train by SGD, whose update is a sum of gradients")
        # |u|^2 - |u - g|^2 = 2 u g - |g|^2, with u the update over the sum of step sizes.
        return 2 * of_round.products / of_round.step_sums[:, None] - of_round.norms.square()


def tail_among_others(values: Tensor) -> Tensor:
    """``(V, M)`` normal distribution function of each client's values ``(V, M)`` under those of the other clients.

    Raises:
        ViewError: there is one client only.
    """
    other_clients = len(values) - 1
    if other_clients < 1:
        raise ViewError("expected two clients or more in a round, got one")
    values = values.double()
    # Mean and variance of all clients but one: the sums without that one.
    mean = (values.sum(0) - values) / other_clients
    mean_square = (values.square().sum(0) - values.square()) / other_clients
    variance = (mean_square - mean.square()).clamp(min=0)
    tail: Tensor = torch.special.ndtr((values - mean) / (variance + _FLOOR).sqrt())
    return tail


class FedMIALoss(_OfRounds):
    """FedMIA-I: tail probability of a candidate's loss under the client's model among other clients' models.

    In every round, the other clients' values are the law of a model that was not trained on the record; the score is
    the mean over rounds of the normal distribution function at the client's own value.

    Threat model: passive server that sees each client's update in every round.

    References:
        [Zhu25], section 4 (FedMIA-I); the variance and its floor of 1e-8 are those of the published code.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import FedMIALoss
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = FedMIALoss()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.71
    """

    name = "fedmia-1"
    series = True
    references = (_FEDMIA,)
    for_comparison = True  # candidate-fit or fedmia-2 is at least as good in all 165 cells

    def scores(self, of_round: RoundStatistics) -> Tensor:
        return tail_among_others(self.measure(of_round))

    def measure(self, of_round: RoundStatistics) -> Tensor:
        """``(V, M)`` values, higher for a member."""
        return -of_round.loss


class FedMIACosine(FedMIALoss):
    """FedMIA-II: tail probability of the cosine of update and candidate's gradient among other clients' updates.

    Threat model: passive server that sees each client's update in every round.

    References:
        [Zhu25], section 4 (FedMIA-II).

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import FedMIACosine
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = FedMIACosine()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.72
    """

    name = "fedmia-2"

    def measure(self, of_round: RoundStatistics) -> Tensor:
        return of_round.cosines
