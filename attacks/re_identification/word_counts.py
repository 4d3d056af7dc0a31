"""Word counts of a device in closed form, from the last layer of a language model."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.re_identification.estimates import UNSEEN, IdentityEstimate
from fedleak.attacks.re_identification.messages import check_known, known_view, mean_over_pseudonyms, round_means
from fedleak.attacks.re_identification.reidentification import IdentityAttack, against_others, standardised
from fedleak.attacks.re_identification.simulated import FEATURES, OWNERS
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.ranges import PositiveFloat
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import HOLDOUT, USERS

BIAS, WEIGHT = "output.bias", "output.weight"
"""Names of the last layer's parameters: one entry, or row, per word."""


@dataclass(frozen=True)
class WordLaws:
    """Word frequencies of the users whose texts the adversary has.

    Attributes:
        users: ``(U,)`` users, ascending; `UNSEEN`, first, for the hold-out.
        counts: ``(U, W)`` float64, how often each word is a target in their texts.
        labels: ``(P,)`` row of `counts` of each known message's user.
        frequencies: ``(P, W)`` word frequencies of the texts on the device of each known message.
    """

    users: Tensor
    counts: Tensor
    labels: Tensor
    frequencies: Tensor

    @property
    def base(self) -> Tensor:
        """``(W,)`` frequencies in all texts together."""
        total = self.counts.sum(0)
        return total / total.sum()

    def ratios(self, smoothing: float) -> tuple[Tensor, Tensor]:
        """``(U, W)`` logarithms of the ratios of the users' frequencies to everybody's, and their differences."""
        base = self.base
        frequencies = self.smoothed(smoothing)
        log_ratios = torch.where(base > 0, frequencies.log() - base.log(), 0.0)
        return log_ratios, frequencies - base

    def smoothed(self, words: float) -> Tensor:
        """``(U, W)`` frequencies, with so many words of everybody's texts added to each user's."""
        return (self.counts + words * self.base) / (self.counts.sum(1, keepdim=True) + words)


@dataclass(frozen=True)
class WordEstimate:
    """Estimated word frequencies of messages.

    Attributes:
        frequencies: ``(V, W)`` float64, with errors of mean zero, so that some are negative.
        noise: ``(V, 1)`` variance of the noise in each.
        words: ``(V, 1)`` expected number of words of each device.
    """

    frequencies: Tensor
    noise: Tensor
    words: Tensor

    def weights(self, base: Tensor, burstiness: float) -> Tensor:
        """``(V, W)`` share of the variance of each frequency that is not noise, for frequencies ``base (W,)``."""
        # A word of frequency b among N has the variance burstiness b / N, with 1 for independent words.
        variance = burstiness * base / self.words.clamp(min=1)
        return variance / (variance + self.noise).clamp(min=torch.finfo(torch.float64).tiny)


@dataclass(frozen=True, kw_only=True)
class WordCounts(IdentityAttack):
    """Likelihood of a device's word counts, which the last layer's bias gives in closed form.

    In a step of gradient descent on the cross-entropy of the next word, the bias of word w changes by the learning rate
    times (frequency of w in the mini-batch - mean predicted probability of w). Over T steps of rate r,
    ``delta_w / (r T) = f_w - p_w``. (1) The server has the texts of its own devices, so their messages of a round give
    p_w. (2) With p_w, every message gives the word frequencies f_w of its device, without any training. (3) They are
    scored by the Poisson log-likelihood of each known user's frequencies q_w against those of everybody, b_w:
    ``sum_w a_w (f_w log(q_w / b_w) - (q_w - b_w))``. The weight a_w is 1 without noise. With declared noise it is the
    share of the variance of f_w that is not noise, which turns the sum into the matched filter for much noise. (4) The
    scores of each user are standardised by those of the known messages of others (`against_others`), since the laws of
    users with few texts are less precise. (5) If the rows of the last layer's weight are recorded, a row moves by the
    change of its bias times the mean hidden state. This state is estimated from the known messages; both measurements
    are combined by their inverse variances.

    Threat model: passive server, all rounds; it has data of users, and devices of its own that train on these data. It
    knows the devices' algorithm, which is plain gradient descent.

    Args:
        smoothing: number of words of everybody's texts that are added to each user's.
        burstiness: variance of a word's count over that of independent words.
        linked: whether the frequencies of all messages under a pseudonym are averaged.

    Variants:
        linked: scores all messages under a pseudonym together.

    References:
        This project; for labels instead of words, [Wainakh22], and [Ramakrishna22].

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import WordCounts
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy()
        >>> estimate = WordCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        1.0
    """

    name = "word-counts"
    threat_model = ThreatModel(
        sees="the delta of the last layer's bias, and of its weight if noise is declared, each round",
        knows="the devices' training algorithm, and data of every user, on devices of its own that take part",
        needs=(*("known", f"deltas:{BIAS}", ExampleAlgorithm), *(f"auxiliary:{name}" for name in (FEATURES, OWNERS))),
    )
    variants: ClassVar[Variants] = {"linked": {"linked": True, "listed": False}}

    smoothing: PositiveFloat = 500.0
    burstiness: PositiveFloat = 3.0
    sharpness: PositiveFloat = 3.0
    linked: bool = False

    def run(self, view: History, *, generator: torch.Generator) -> Estimate:
        laws = word_laws(view)
        if len(laws.users) < 2:
            raise ViewError("expected texts of at least two known users, got those of one")
        estimate, known_frequencies = estimated_words(view, laws)
        if self.linked:
            estimate = averaged(estimate, view.pseudonyms)
        # sum_w a_w (f_w log(q_w / b_w) - (q_w - b_w)).
        log_ratios, differences = laws.ratios(self.smoothing)
        weights = estimate.weights(laws.base, self.burstiness)
        scores = (weights * estimate.frequencies) @ log_ratios.T - weights @ differences.T
        # The known messages have less noise, or none; their scores are to have the same weights.
        typical = weights.mean(0)
        cohort = (typical * known_frequencies) @ log_ratios.T - typical @ differences.T
        # Variance that noise in f_w adds to a score.
        noise = estimate.noise.mean() * (typical * log_ratios).square().sum(1)
        scores = against_others(scores, cohort, laws.labels, noise)
        return IdentityEstimate(scores=standardised(scores, self.sharpness).exp(), users=laws.users)


def word_laws(view: History) -> WordLaws:
    """Counts of the words that the known devices' models learn to predict: all after the first of a text.

    Raises:
        ViewError: the texts have other words than the last layer.
    """
    known_devices = known_view(view)
    tokens = view.auxiliary[FEATURES]
    size = view.deltas[BIAS].shape[1]
    if tokens.dim() != 2 or tokens.is_floating_point() or int(tokens.max()) >= size or size == 1:
        raise ViewError(f"expected a model that predicts the words of the known texts, got one with {size} outputs")
    # Counts of each owner's words but for the first of a text; 0 is padding.
    owners, owner_of_text = torch.unique(view.auxiliary[OWNERS], return_inverse=True)
    row, column = (tokens[:, 1:] > 0).nonzero(as_tuple=True)
    pairs = owner_of_text[row] * size + tokens[row, column + 1]
    counts = pairs.bincount(minlength=len(owners) * size).reshape(len(owners), size).double()
    # Owners of the hold-out are one user.
    holdout = owners[:0]
    if HOLDOUT in known_devices.priors:
        holdout = known_devices.priors[USERS][known_devices.priors[HOLDOUT]]
    user_of_owner = torch.where(torch.isin(owners, holdout), UNSEEN, owners)
    users, user_number = torch.unique(user_of_owner, return_inverse=True)
    # A known device has the texts of its owner.
    owner_of_device = torch.searchsorted(owners, known_devices.priors[USERS])
    frequencies = counts / counts.sum(1, keepdim=True).clamp(min=1)
    return WordLaws(
        users=users,
        counts=counts.new_zeros(len(users), size).index_add_(0, user_number, counts),
        labels=user_number[owner_of_device],
        frequencies=frequencies[owner_of_device],
    )


def estimated_words(view: History, laws: WordLaws) -> tuple[WordEstimate, Tensor]:
    """Word frequencies of the anonymous messages; and of the known ones ``(P, W)``, as if they were anonymous."""
    known_devices = known_view(view)
    learner = view.require(ExampleAlgorithm)
    check_known(known_devices.deltas[BIAS])
    # r T of each message.
    rates = learner.learning_rate * learner.steps(view.example_counts)[:, None]
    known_rates = learner.learning_rate * learner.steps(known_devices.example_counts)[:, None]
    changes, variance = _bias_changes(view, known_devices)
    known_changes, _ = _bias_changes(known_devices, known_devices)
    # p_w = f_w - delta_w / (r T) of the known messages, whose mean in a round is that of all; then f_w of every one.
    predicted = laws.frequencies - known_changes / known_rates
    words_per_example = float(laws.counts.sum()) / len(view.auxiliary[FEATURES])
    estimate = WordEstimate(
        frequencies=changes / rates + round_means(predicted, known_devices, view),
        noise=variance / rates.square(),
        words=view.example_counts[:, None].double() * words_per_example,
    )
    known_frequencies = known_changes / known_rates + round_means(predicted, known_devices, known_devices)
    return estimate, known_frequencies


def _bias_changes(view: History, known_devices: History) -> tuple[Tensor, float]:
    """``(V, W)`` changes of the bias, and the variance of the noise in each.

    Under noise, the weight's change projected on the mean hidden state is a second measurement. Its error is that of
    the noise, and the mean squared one that it has on the known messages.
    """
    bias = view.deltas[BIAS].double()
    variance = view.noise_scale(BIAS) ** 2
    if not variance or WEIGHT not in view.deltas:
        return bias, variance
    # The mean hidden state h, by which a row of the weight moves relative to its bias: least squares of dW = db h'.
    known_bias = known_devices.deltas[BIAS].double()
    known_weight = known_devices.deltas[WEIGHT].double()
    scale = known_bias.square().sum().clamp(min=torch.finfo(torch.float64).tiny)
    state = torch.einsum("pw,pwh->h", known_bias, known_weight) / scale
    # The second measurement, dW h / |h|^2.
    length = max(float(state.norm()), torch.finfo(torch.float32).tiny)
    second = view.deltas[WEIGHT].double() @ state / length**2
    error = float((known_weight @ state / length**2 - known_bias).square().mean())
    second_variance = view.noise_scale(WEIGHT) ** 2 / length**2 + error
    # Both by their inverse variances.
    share = second_variance / (variance + second_variance)
    combined = share * bias + (1 - share) * second
    combined_variance = share**2 * variance + (1 - share) ** 2 * second_variance
    return combined, combined_variance


def averaged(estimate: WordEstimate, pseudonyms: Tensor) -> WordEstimate:
    """The mean estimate of all messages under the pseudonym ``(V,)`` of each."""
    _, device, counts = torch.unique(pseudonyms, return_inverse=True, return_counts=True)
    frequencies = mean_over_pseudonyms(estimate.frequencies, pseudonyms)
    return dataclasses.replace(estimate, frequencies=frequencies, noise=estimate.noise / counts[device][:, None])
