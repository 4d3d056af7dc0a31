"""Private user vectors: the estimate, the published sum of messages, a spectral estimate, and baselines."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedleak.attacks.applicability import without_shown_items
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.core.answers import Quantities
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, Scores, check_tensor
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import ITEM_EMBEDDING, LEANING, RoundView, View


@dataclass(frozen=True, kw_only=True)
class VectorEstimate(Estimate):
    """The private vector of each client, up to a positive factor.

    Attributes:
        vectors: ``(V, d)``, d as of the item vectors.

    References:
        [London20], Definition 1 and Proposition 1.
    """

    inferred = "the client's private vector, which predicts what it likes"
    truth = ("user_vector", "labels")
    metrics = ("error", "success", "label-error", "cosine", "flipped")
    vectors: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_shown_items(view, truth)

    def check(self, view: View) -> None:
        check_tensor("vectors", self.vectors, (view.victims, view.deltas[ITEM_EMBEDDING].shape[-1]))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Compares the predictions ``sgn(u.v)`` of the estimates with those of the clients' vectors.

        ``error`` is the share of the catalogue on which they differ, ``label-error`` the share of the client's labelled
        items on which the estimate contradicts the label, ``cosine`` the cosine of the two vectors, ``flipped`` 1 if it
        is negative. `fedleak.evaluation.runner.successes` adds ``success``, which needs the tolerance of a table or a
        training.
        """
        table = view.model[ITEM_EMBEDDING].double()
        labelled_items = view.served
        if (
            labelled_items is None
        ):  # clients hide which items they labelled: labels of all items, -1 where there is none
            if truth["labels"].shape != (view.victims, len(table)):
                shape = tuple(truth["labels"].shape[1:])
                raise ViewError(f"expected the labels of all {len(table)} items in the ground truth, got {shape}")
            labelled_items = torch.where(truth["labels"] >= 0, torch.arange(len(table)), -1)
        likes = truth["labels"][:, : labelled_items.shape[1]] > 0.5
        return self._scored(table, labelled_items, truth["user_vector"].double(), likes)

    def _scored(self, table: Tensor, items: Tensor, user_vectors: Tensor, likes: Tensor) -> Scores:
        vectors = self.vectors.double()
        is_item = items >= 0  # clients with fewer items than others are padded with -1
        predictions = vectors @ table.T
        error = (predictions.sign() != (user_vectors @ table.T).sign()).double().mean(1)
        predicted_likes = predictions.gather(1, items.clamp(min=0)) > 0
        label_error = ((predicted_likes != likes) & is_item).sum(1) / is_item.sum(1)
        cosine = torch.nn.functional.cosine_similarity(vectors, user_vectors, dim=1)
        metrics = {"error": error, "label-error": label_error, "cosine": cosine, "flipped": (cosine < 0).double()}
        answers = Quantities(  # a vector is known up to a positive factor
            inferred=normalize(vectors),
            true=normalize(user_vectors),
            grid=torch.zeros(len(user_vectors), dtype=torch.float64),
            rescored=lambda guesses: VectorEstimate(vectors=guesses)._scored(table, items, user_vectors, likes),
        )
        return Scores(metrics, is_item.sum(1), (likes & is_item).sum(1), answers=answers)


@dataclass(frozen=True)
class VectorMessages:
    """Messages of clients, float64; row i is the sum of ``updates_i`` noisy messages ``-alpha l'(0) y_i u``.

    The ``sums (V, R, d)`` are zero where nothing was sent; ``updates (V, R)`` counts the messages in each row,
    ``leaning (V,)`` is -1 or +1, and `factor` is ``alpha l'(0)``. If clients add noise to every row of the table
    (`hidden`), each row has as many messages as the client, and those about unlabelled items are noise alone.
    """

    sums: Tensor
    updates: Tensor
    leaning: Tensor
    factor: float
    hidden: bool = False

    @property
    def sent(self) -> Tensor:
        """``(V, R)`` True for the rows with a message."""
        return self.updates > 0


def messages_of(view: RoundView) -> VectorMessages:
    """The messages in a view; without a prior, clients are assumed to dislike more than they like.

    Raises:
        ViewError: the learner is of another kind, its loss violates Assumption 2, or a client has sent nothing.
    """
    learner = view.require(MFAlgorithm)
    if learner.slope_at_zero == 0:
        raise ViewError("expected a loss whose derivative at 0 is not zero (Assumption 2), got one that is flat there")
    sums = view.deltas[ITEM_EMBEDDING].double()
    is_hidden = view.served is None
    shown = torch.ones(sums.shape[:2], dtype=torch.bool) if is_hidden else view.served_mask
    # Unless clients report how many messages each row sums, a row that moved counts as one.
    updates = ((sums.abs().sum(2) > 0) & shown).double()
    if view.updates is not None:
        updates = view.updates.double() * shown
    if is_hidden and view.messages is not None:
        updates = updates * view.messages[:, None]
    silent = torch.nonzero(updates.sum(1) == 0).flatten().tolist()
    if silent:
        raise ViewError(f"expected messages of every client, got none of the client at {silent[0]} in the view")
    return VectorMessages(
        sums=sums * shown[..., None],
        updates=updates,
        leaning=_leaning(view),
        factor=learner.learning_rate * learner.slope_at_zero,
        hidden=is_hidden,
    )


def _leaning(view: RoundView) -> Tensor:
    """``(V,)`` -1 or +1."""
    return view.priors.get(LEANING, -torch.ones(view.victims)).double()


def facing(vectors: Tensor, votes: Tensor, leaning: Tensor) -> Tensor:
    """Vectors ``(V, d)``, negated where the sign of ``votes (V,)`` contradicts ``leaning (V,)``.

    A vote is positive if the vector implies that more items are liked than not.
    """
    return torch.where((votes * leaning < 0)[:, None], -vectors, vectors)


class VectorAttack(Attack):
    """Base class of attacks on the private vectors of a recommender's clients."""

    family = "identifiability"
    estimates = VectorEstimate
    threat_model = ThreatModel(
        sees="the sum of each client's messages about each item, and their number",
        knows="the loss, the local learning rate, the noise, and each client's leaning (Assumption 1)",
        needs=(f"deltas:{ITEM_EMBEDDING}", MFAlgorithm),
    )


class RandomVector(VectorAttack):
    """Random guess: a random direction, which is wrong for about half of the items.

    Threat model: a server that does not use the messages.

    References:
        This project; the error of guessing under [London20], Definition 1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.identifiability import RandomVector
        >>> from fedleak.attacks.identifiability.toy import toy
        >>> view, truth = toy()
        >>> estimate = RandomVector()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["error"].mean()), 2)
        0.47
    """

    name = "chance"
    baseline = True
    threat_model = ThreatModel(
        sees="no update", knows="the length of a user vector", needs=VectorAttack.threat_model.needs
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> VectorEstimate:
        view.require(MFAlgorithm)
        shape = view.victims, view.deltas[ITEM_EMBEDDING].shape[-1]
        return VectorEstimate(vectors=torch.randn(shape, generator=generator, dtype=torch.float64))


class MeanItem(VectorAttack):
    """Mean item vector, with the sign of the client's leaning.

    Users of a recommender are similar: most like the same few items and dislike the average one. An estimate that is no
    better than this has inferred nothing specific to the user.

    Threat model: a server that uses only its own model and each client's leaning.

    References:
        This project; a baseline for [London20].

    Example:
        >>> import torch
        >>> from fedleak.attacks.identifiability import MeanItem
        >>> from fedleak.attacks.identifiability.toy import toy
        >>> view, truth = toy()
        >>> estimate = MeanItem()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["error"].mean()), 2)
        0.51
    """

    name = "mean-item"
    baseline = True
    threat_model = ThreatModel(
        sees="no update", knows="its own model, and each client's leaning", needs=VectorAttack.threat_model.needs
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> VectorEstimate:
        view.require(MFAlgorithm)
        return VectorEstimate(vectors=_leaning(view)[:, None] * view.model[ITEM_EMBEDDING].double().mean(0))


class PAC(VectorAttack):
    """PAC identification of user vectors by the sum of messages: ``u = (alpha l'(0) T B)^-1 sum_t sum_i dv_i``.

    If all item vectors are zero, a message about item i is ``-alpha l'(0) y_i u``, so that the sum is the user's vector
    times ``1 - 2p``: its sign is right if most labels are negative and wrong if most are positive, and it is zero for p
    = 1/2. ``T B`` is the number of messages, which the server counts.

    Threat model: an active server that sends zero item vectors T times, or a passive one that adds up the messages of
    honest rounds. It knows each client's leaning.

    References:
        [London20], Protocols 2 and 3.

    Example:
        >>> import torch
        >>> from fedleak.attacks.identifiability import PAC
        >>> from fedleak.attacks.identifiability.toy import toy
        >>> view, truth = toy()
        >>> estimate = PAC()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["error"].mean()), 2)
        0.0
    """

    name = "pac"
    exact = True
    references = ("London20, Protocols 2 and 3",)

    def run(self, view: RoundView, *, generator: torch.Generator) -> VectorEstimate:
        messages = messages_of(view)
        # With p the share of likes, the mean message is alpha l'(0) (1 - 2p) u; the leaning is the sign of 2p - 1.
        mean = messages.sums.sum(1) / messages.updates.sum(1, keepdim=True)
        return VectorEstimate(vectors=-messages.leaning[:, None] * mean / messages.factor)


class PACSpectral(VectorAttack):
    """Leading right singular vector of a client's messages, with the sign by which most items agree with its leaning.

    The sum of n_i messages about item i is ``n_i (-alpha l'(0)) y_i u`` plus noise with n_i times the variance of one
    message. Divided by the root of n_i, all rows have the same noise and the matrix is ``y' u^T`` plus white noise: its
    leading right singular vector estimates +-u, whatever the sum of the labels. Each item votes for the sign of its
    label.

    Threat model: an active server that sends zero item vectors T times, or a passive one that adds up the messages of
    honest rounds. It knows each client's leaning.

    References:
        This project; the messages are those of [London20], Protocols 2 and 3.

    Example:
        >>> import torch
        >>> from fedleak.attacks.identifiability import PACSpectral
        >>> from fedleak.attacks.identifiability.toy import toy
        >>> view, truth = toy()
        >>> estimate = PACSpectral()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["error"].mean()), 2)
        0.0
    """

    name = "pac-spectral"
    exact = True
    cost = "one d x d eigenproblem per victim"

    def run(self, view: RoundView, *, generator: torch.Generator) -> VectorEstimate:
        messages = messages_of(view)
        axis = leading_axis(messages)
        # The message about an item points along +axis or -axis: one vote of each item, whatever its size.
        votes = torch.einsum("vrd,vd->vr", messages.sums, axis).sign().sum(1)
        return VectorEstimate(vectors=facing(axis, votes, messages.leaning))


def leading_axis(messages: VectorMessages) -> Tensor:
    """``(V, d)`` leading right singular vector of each client's whitened messages, scaled to a mean message."""
    # Row i has n_i times the variance of one message; divided by the root of n_i, all rows have the same noise.
    whitened = messages.sums / messages.updates.clamp(min=1).sqrt()[..., None]
    # Right singular vectors are eigenvectors of the d x d Gram matrix; eigenvalues ascend, so the leading one is last.
    gram = torch.einsum("vrd,vre->vde", whitened, whitened)
    leading: Tensor = torch.linalg.eigh(gram).eigenvectors[..., -1]
    mean_length = torch.einsum("vrd,vd->vr", messages.sums, leading).abs().sum(1) / messages.updates.sum(1)
    return leading * mean_length[:, None]
