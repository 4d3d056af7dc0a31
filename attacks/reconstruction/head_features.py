"""Attacks on heads of frozen networks: the features of single records, and images that have them."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.applicability import without_records
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.attacks.reconstruction.gradient_matching import decoupled
from fedleak.attacks.reconstruction.head_layer import head_features
from fedleak.attacks.reconstruction.likeness import identified, nearest
from fedleak.attacks.reconstruction.separated_features import Separated
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, EstimateError, Scores, check_tensor
from fedleak.core.metric import POSITIVE, SHARE, Metric
from fedleak.core.progress import with_progress
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

_EXACT = 1e-3
"""Relative error below which features are exact: those of two records differ by more than a tenth."""
_CERTAIN = _EXACT / 200
"""Share of the rows' error in features, see `Separated.distances`, up to which they are certain. What was subtracted
before has errors too: over 16 records, an error of the update became up to 190 times larger than that share."""
_MIDDLE = 0.5
_SPREAD = 0.25
"""The solver works with standardised images, as in gradient matching: ``image = 0.5 + 0.25 z``."""
_STEP = 0.1
"""First learning rate of Adam on signs: the step of each standardised number, as in gradient matching."""
_AT_ONCE = 32
"""Images that are inverted together."""
_KNOWS = "the frozen network, the clients' training algorithm, of one step"
_SEES = "the update of the head"
_NEEDS = ("deltas", "model", FrozenBackboneAlgorithm)


@dataclass(frozen=True, kw_only=True)
class HeadFeaturesEstimate(Estimate):
    """Features that a frozen network computed of each client's records.

    A record is known by its features as by a fingerprint: whoever has the record, or images among which it may be,
    finds it. Scored if the recording keeps the records.

    Attributes:
        features: ``(V, M, F)`` float64.
        labels: ``(V, M)`` int64 classes, -1 if unknown.
        certified: ``(V, M)`` bool, whether the attack is certain.
        count: ``(V,)`` int64 number of records of each client; the others are padding.
    """

    inferred = "what the frozen network computed of its single records"
    truth = ("record_hash", "records", "record_labels")
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        Metric(
            "exact-features",
            "Exact features is the share of a client's records whose features are inferred to a thousandth.",
            judged=True,
            span=SHARE,
            words="infers exactly what the frozen network computed of {} of 100 training examples",
        ),
        Metric(
            "certified-features",
            "Certified features is the share of a client's records of whose features the attack is certain.",
            leak=False,
            span=SHARE,
        ),
        Metric(
            "false-features",
            "False features is the number of features called certain that no record of the client has.",
            leak=False,
            lower_is_better=True,
            span=POSITIVE,
        ),
        Metric(
            "identified-features",
            "Identified by features is the share of a client's records whose features are nearer to the inferred ones"
            " than those of up to 99 others of the same class.",
            span=SHARE,
        ),
        Metric(
            "identified-features-by-chance",
            "Identified by features by chance is that share for guessing.",
            leak=False,
            span=SHARE,
        ),
        Metric(
            "labels-of-features",
            "Labels of features is the share of the exact features with the right class.",
            span=SHARE,
        ),
    )
    features: Tensor
    labels: Tensor
    certified: Tensor
    count: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: object) -> str | None:
        if view.algorithm is not None and not isinstance(view.algorithm, FrozenBackboneAlgorithm):
            return "the clients train no head on a frozen network"
        return without_records(view, truth)  # type: ignore[arg-type]

    def check(self, view: View) -> None:
        slots = self.features.shape[1] if self.features.dim() > 1 else 0
        size = (view.victims, slots)
        check_tensor("count", self.count, size[:1], dtype=torch.int64)
        check_tensor("labels", self.labels, size, dtype=torch.int64)
        check_tensor("certified", self.certified, size, dtype=torch.bool)
        if self.features.dim() != 3 or self.features.shape[:2] != size:
            raise EstimateError(f"features: expected (V, M, F), got {tuple(self.features.shape)}")
        if not bool(torch.isfinite(self.features).all()):
            raise EstimateError("features: expected finite numbers")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Shares of each client's records; their features are computed with the view's frozen network.

        Without the records, only the share of certain ones.
        """
        if not {"records", "record_labels"} <= truth.keys():
            return Scores({"certified-features": self.certified.sum(1) / view.example_counts.double()})
        algorithm = view.require(FrozenBackboneAlgorithm)
        is_record = (truth["record_hash"] != 0).any(2)
        originals = [algorithm.features_of(truth["records"][v, mask]).double() for v, mask in enumerate(is_record)]
        labels = [truth["record_labels"][v, mask] for v, mask in enumerate(is_record)]
        guesses = [self.features[v, : int(count)] for v, count in enumerate(self.count)]
        matched = [nearest(*pair) for pair in zip(guesses, originals, strict=True)]
        known: tuple[Tensor | None, Tensor | None] = (None, None)
        if IMAGES in view.auxiliary:
            known = algorithm.features_of(view.auxiliary[IMAGES]).double(), view.auxiliary[LABELS]
        shares = identified(matched, originals, labels, known)
        exact, certified, false, right = [], [], [], []
        for v, (guess, original) in enumerate(zip(guesses, originals, strict=True)):
            is_exact = _relative(matched[v], original) < _EXACT
            exact.append(is_exact.double().mean())
            is_certain = self.certified[v, : len(guess)]
            certified.append(is_certain.sum().double() / max(len(original), 1))
            false.append(_unlike(guess[is_certain], original))
            right.append(_right_labels(guess, self.labels[v, : len(guess)], original, labels[v]))
        metrics = {
            "exact-features": torch.stack(exact),
            "certified-features": torch.stack(certified),
            "false-features": torch.stack(false),
            "identified-features": shares["identified"],
            "identified-features-by-chance": shares["identified-by-chance"],
            "labels-of-features": torch.stack(right),
        }
        size = is_record.sum(1)
        return Scores(metrics, items=size, positives=size)


def _relative(guesses: Tensor, originals: Tensor) -> Tensor:
    """``(N,)`` distance of each guess from its original, in lengths of the original."""
    distances: Tensor = (guesses - originals).norm(dim=1) / originals.norm(dim=1).clamp(min=1e-300)
    return distances


def _unlike(guesses: Tensor, originals: Tensor) -> Tensor:
    """Number of guesses ``(M, F)`` that are near to none of the originals ``(N, F)``."""
    if not len(guesses):
        return torch.tensor(0.0, dtype=torch.float64)
    distances: Tensor = torch.cdist(guesses, originals) / originals.norm(dim=1).clamp(min=1e-300)
    return (distances.amin(1) >= _EXACT).sum().double()


def _right_labels(guesses: Tensor, guessed: Tensor, originals: Tensor, labels: Tensor) -> Tensor:
    """Share of the exact guesses that have the class of their original; NaN without any."""
    if not len(guesses):
        return torch.tensor(torch.nan, dtype=torch.float64)
    distances = torch.cdist(guesses, originals) / originals.norm(dim=1).clamp(min=1e-300)
    nearest_distance, number = distances.min(1)
    is_exact = nearest_distance < _EXACT
    return (guessed[is_exact] == labels[number[is_exact]]).double().mean()


@dataclass(frozen=True, kw_only=True)
class HeadFeatures(Attack):
    """Exact features of single records from the update of a head that clients train on a frozen network.

    The update of the layer that reads the features is ``C^T [Z, 1] / B`` for the features Z of B records and their
    errors C. Its rows span the features, if there are at most as many records as errors are independent:

    * a linear head on K classes: ``c_i = p_i - y_i``, whose numbers add up to 0, so B is at most K - 1. Of more records
      only K - 1 mixtures are sent, and of no record its features;
    * a head with a hidden layer of N neurons: B is at most N, and at most as many as features.

    Within this span, in turn:

    1. the quotient of a neuron that one record alone excites (`separated_features`);
    2. where features are never negative, as behind ReLU: vectors with many zeros (`sparse_vectors`). The means over the
       places of an image keep a zero only where the whole map is zero, as two of three of EfficientNet-lite0 at
       96 x 96 pixels are;
    3. behind a hidden layer with ReLU, columns of errors that are zero at many neurons and have the signs of a class at
       the others; all of them together give all features.

    Features are found if the errors of a class, made again with them, lie in the span of the columns and have the
    scale of one record; they are then subtracted, which leaves fewer. They are certain if the error of the update,
    which shows in the singular values beyond those of the records, is far too small to change them by a thousandth: the
    rounding of float32 is, that of bfloat16 or noise that nobody declared is not.

    Exact for one step of SGD. It refuses several steps, momentum or Adam, clipping, noise and sums of clients.

    Threat model: passive server, one round; knows the frozen network (public), the head that it sent and the learning
    rate.

    Args:
        failures: searches without a new record after which that of a client ends.

    References:
        This project, for the search; [Phong18], section III, and [Dimitrov24], sections 3 and 4, for what it extends.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import HeadFeatures
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("head")
        >>> estimate = HeadFeatures()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["exact-features"].mean()), 2)
        1.0
    """

    name = "head-features"
    family = "reconstruction"
    exact = True
    certifies = True
    cost = "seconds per victim, minutes for 64 records"
    audited_victims = 8
    estimates = HeadFeaturesEstimate
    threat_model = ThreatModel(sees=_SEES, knows=_KNOWS, needs=_NEEDS)

    failures: PositiveInt = 40

    def run(self, view: RoundView, *, generator: torch.Generator) -> HeadFeaturesEstimate:
        return _estimate(view, head_features(view, failures=self.failures, generator=generator))


def _estimate(view: RoundView, separated: Sequence[Separated]) -> HeadFeaturesEstimate:
    width = view.require(FrozenBackboneAlgorithm).frozen.width
    features = [client.inputs.reshape(-1, width) for client in separated]
    certain = [client.distances <= _CERTAIN for client in separated]
    return HeadFeaturesEstimate(
        features=pad_sequence(features, batch_first=True),
        labels=pad_sequence([client.classes for client in separated], batch_first=True, padding_value=-1),
        certified=pad_sequence(certain, batch_first=True),
        count=torch.tensor([len(client.classes) for client in separated]),
    )


@dataclass(frozen=True, kw_only=True)
class MeanFeatures(Attack):
    """Baseline: the features of every record are guessed to be the mean of those of the adversary's images.

    Threat model: passive server, which holds auxiliary images and does not look at the update.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import MeanFeatures
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("head")
        >>> estimate = MeanFeatures()(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["exact-features"].mean())
        0.0
    """

    name = "mean-features"
    family = "reconstruction"
    baseline = True
    estimates = HeadFeaturesEstimate
    threat_model = ThreatModel(
        sees="how many examples the client reports",
        knows="the frozen network, and images of the same kind",
        needs=(f"auxiliary:{IMAGES}", FrozenBackboneAlgorithm),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> HeadFeaturesEstimate:
        mean = view.require(FrozenBackboneAlgorithm).features_of(view.auxiliary[IMAGES]).double().mean(0)
        most = int(view.example_counts.max())
        return HeadFeaturesEstimate(
            features=mean.expand(view.victims, most, -1).clone(),
            labels=torch.full((view.victims, most), -1),
            certified=torch.zeros(view.victims, most, dtype=torch.bool),
            count=view.example_counts.long(),
        )


@dataclass(frozen=True, kw_only=True)
class UnrelatedHeadFeatures(HeadFeatures):
    """Baseline: the features in the next client's update.

    Threat model: a server that has another client's update.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import UnrelatedHeadFeatures
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("head")
        >>> estimate = UnrelatedHeadFeatures()(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["exact-features"].mean())
        0.0
    """

    name = "unrelated-head-features"
    baseline = True
    control = True

    def run(self, view: RoundView, *, generator: torch.Generator) -> HeadFeaturesEstimate:
        return super().run(decoupled(view, "update"), generator=generator)


@dataclass(frozen=True, kw_only=True)
class HeadImages(ReconstructionAttack):
    """Images whose features in the frozen network are those that the head's update reveals.

    Features come from `HeadFeatures`. Each image minimises ``|f(x) - f|^2 / |f|^2 + w TV``, by Adam on signs from the
    mean image of the adversary's of its class, or from grey without any. A pooled feature says what is in an image
    rather than where, so that the images are likenesses of a class more than of a record.

    Threat model: passive server, one round; knows the frozen network, the head that it sent and the learning rate, and
    perhaps images of the same kind.

    Args:
        failures: see `HeadFeatures`.
        max_iter: iterations.
        total_variation: weight of the total variation of the images, standardised by 0.5 and 0.25.
        minutes: time limit of a client.

    References:
        [Mahendran15], for the inversion of a network's features; this project, for the features.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import HeadImages
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("head")
        >>> estimate = HeadImages(max_iter=20)(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["psnr"].mean()) > 6
        True
    """

    name = "head-images"
    cost = "seconds per image"
    audited_victims = 2
    slow = True
    threat_model = ThreatModel(sees=_SEES, knows=_KNOWS, needs=(*_NEEDS, f"auxiliary:{IMAGES}"))

    failures: PositiveInt = 40
    max_iter: PositiveInt = 200
    total_variation: NonNegativeFloat = 0.02
    minutes: PositiveFloat = 10.0

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        separated = _of_images(view, failures=self.failures, generator=generator)
        starts = _class_means(view)
        images = []
        for client in with_progress(separated):
            images.append(self._inverted(view, client, starts[client.classes]))
        return reconstruction(images, labels=[client.classes for client in separated])

    def _inverted(self, view: RoundView, client: Separated, starts: Tensor) -> Tensor:
        """``(M, *shape)`` images in [0, 1] with the features of a client."""
        end = time.monotonic() + 60 * self.minutes
        inverted = [starts[:0]]
        for part in torch.split(torch.arange(len(starts)), _AT_ONCE):
            inverted.append(self._matched(view, client.inputs[part].float(), starts[part], end))
        return torch.cat(inverted)

    def _matched(self, view: RoundView, features: Tensor, starts: Tensor, end: float) -> Tensor:
        network = view.require(FrozenBackboneAlgorithm).frozen
        standardised = ((starts - _MIDDLE) / _SPREAD).requires_grad_()
        solver = torch.optim.Adam([standardised], lr=_STEP)
        lengths = features.square().sum(1).clamp(min=1e-30)
        for iteration in range(self.max_iter):
            if time.monotonic() > end:
                break
            # Steps fall as a half cosine.
            share = iteration / self.max_iter
            solver.param_groups[0]["lr"] = _STEP * max((1 + math.cos(math.pi * share)) / 2, 1e-3)
            with torch.enable_grad():
                misfit = (network(_MIDDLE + _SPREAD * standardised) - features).square().sum(1) / lengths
                loss = (misfit + self.total_variation * _variation(standardised)).sum()
                (gradient,) = torch.autograd.grad(loss, standardised)
            standardised.grad = gradient.sign()
            solver.step()
            standardised.data.clamp_(-_MIDDLE / _SPREAD, _MIDDLE / _SPREAD)
        return (_MIDDLE + _SPREAD * standardised.detach()).clamp(0, 1)


def _of_images(view: RoundView, *, failures: int, generator: torch.Generator) -> list[Separated]:
    """The features of each client's images.

    Raises:
        ViewError: the frozen network reads texts.
    """
    if view.require(FrozenBackboneAlgorithm).frozen.reads_texts:
        raise ViewError("expected a frozen network of images, whose pixels can be descended; got one of texts")
    return head_features(view, failures=failures, generator=generator)


def _class_means(view: RoundView) -> Tensor:
    """``(K, *shape)`` mean of the adversary's images of each class; of all, where it has none of one."""
    images = view.auxiliary[IMAGES].float()
    labels = view.auxiliary.get(LABELS)
    means = images.mean(0).repeat(view.require(FrozenBackboneAlgorithm).num_classes, 1, 1, 1)
    if labels is not None:
        for number in torch.unique(labels).tolist():
            means[number] = images[labels == number].mean(0)
    return means


def _variation(images: Tensor) -> Tensor:
    """``(N,)`` mean absolute difference of neighbouring pixels."""
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().flatten(1).mean(1)
    across = (images[..., 1:] - images[..., :-1]).abs().flatten(1).mean(1)
    return down + across
