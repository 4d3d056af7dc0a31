"""Membership and source by a joint fit of every update by all candidates."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedleak.attacks.record_membership.batch_order import whitened
from fedleak.attacks.record_membership.effects import AdamScales, Effects, Places, Sketch
from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.joint_fit import Basis, Fit, fit, predicted_auc, seen_part, without_common_noise
from fedleak.attacks.record_membership.pool import KNOWS, NEEDS, Pool, PoolAttack, flat_updates, recorded_type
from fedleak.client.record_losses import weighted_gradient
from fedleak.client.simulated_clients import mean_clip_factor
from fedleak.core.declared_noise import without_refuted_noise
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.memory import gibibytes, memory_bound
from fedleak.core.progress import report_progress
from fedleak.core.ranges import NonNegativeInt, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_QUADRATURE = ((0.1127, 5 / 18), (0.5, 8 / 18), (0.8873, 5 / 18))
"""Places on the way from the sent model to the client's own, and their weights: the rule of Gauss and Legendre."""
_MOST_STEPS, _PLACES = 32, 5
"""Largest number of steps of a simulated path, and the number of places on it."""
_BYTES_OF_PAIR = 48
"""Memory for each pair of candidates: six float64 numbers."""
_KNOWS = f"{KNOWS}. Exact only if the pool has all training records"
_ASKED = 100
"""Candidates of which the fit is asked how much of their own effect it sees."""
_SIMULATED = 4
"""Simulated clients that estimate by how much clients clip."""


@dataclass(frozen=True)
class JointFitAttack(PoolAttack):
    """Base class of attacks that fit every update by the effects of all candidates.

    A record's effect on the update is minus the sum of step sizes over the number of examples, times its mean gradient
    on the way from the sent model to the client's own. All effects together are fitted to the update as a mixed model
    (`joint_fit`): the weights of a client's records are 1, those of others 0; records that are no candidates and the
    path of the training are noise.

    For one step of SGD the effect is exact, and the weights solve linear equations. Of one pass over the data, the path
    is a straight line, and what remains is mostly noise of the unknown order of the mini-batches, whose covariance
    follows from the candidates' gradients on the line (`batch_order.whitened`), and a part that all clients of the
    round share, which their residuals show (`joint_fit.without_common_noise`). Of several passes, the line is only the
    first fit: its weights simulate the training, by gradient descent on all candidates with these weights, which ends
    close to the client's own model, because the effects with these weights make up the update. The effects on this path
    give the next fit; that whose effects span most of the update counts.

    Adam divides each number of the gradient by about the root of its mean square over batches, which the candidates'
    gradients on the line give (`effects.AdamScales`); with the effects divided alike, its update is fitted as that of
    SGD. It is an approximation: one step of Adam keeps little more than signs, and the fit takes what they lose for
    noise.

    Without declared noise, the scores are in units of their spread over the candidates (`joint_fit.Fit.calibrated`), so
    that the prediction does not trust a model of noise that does not hold; that takes a pool of which each client holds
    a minority. Rounds share a part of the noise (`_summed`). Under Adam, and where each step has a random batch of its
    own, effects are right only on average, so members' scores have a law that the scores show
    (`joint_fit.Fit.of_members`).

    Declared noise bounds the variance from below; effects are then taken at the sent model, because the client's own is
    noisy, and scaled by the clip of simulated clients. Noise that the updates are too short to hold is not expected.

    Attributes:
        rounds: largest number of rounds that are fitted, evenly spaced from the first to the last; None for all.
        sketch: largest number of numbers of an update: of more, random sums with random signs (a count sketch).
        refinements: number of simulated paths for an update of several passes.
        precision: of the inner products of effects. In float32, which takes half the time, directions with less than
            1e-6 of the largest variance are lost: too many where all records have nearly the same gradient. One step
            without noise is always computed in float64, gradients and updates too: in float32, members are
            missed where records are alike.

    Raises:
        ViewError: clients clip the gradients of single examples, or use Adadelta; the pairs of candidates need more
            than half of the memory.

    References:
        This project; Charikar, Chen and Farach-Colton, "Finding frequent items in data streams", ICALP 2002, for the
        sketch.
    """

    cost: ClassVar[str] = (
        "seconds per client and round, tens of seconds for 2,000 candidates; a minute after several passes"
    )
    threat_model: ClassVar[ThreatModel] = ThreatModel(sees="each client's update", knows=_KNOWS, needs=NEEDS)

    rounds: PositiveInt | None = None
    sketch: PositiveInt = 32768
    refinements: NonNegativeInt = 5
    precision: Literal["float32", "float64"] = "float32"

    def fits(self, view: History, *, generator: torch.Generator) -> dict[int, Fit]:
        """Fit of every client's updates, by pseudonym, computed once for all attacks on a view.

        The scores of several rounds are weighted by their shifts (`_summed`); shares are averaged.
        """
        options = self.rounds, self.sketch, self.refinements, self.precision
        return view.shared.value(("joint fit", options), lambda: self._fits(view, generator))

    def _fits(self, view: History, generator: torch.Generator) -> dict[int, Fit]:
        pool, parts = Pool.of(view), dict[int, list[Fit]]()
        if (size := _BYTES_OF_PAIR * len(pool) ** 2) > memory_bound():
            raise ViewError(
                f"it compares {len(pool):,} candidates with each other, which takes {gibibytes(size)}, and it may use "
                f"{gibibytes(memory_bound())}; record fewer candidates"
            )
        for number in _evenly(view, self.rounds):
            messages = (view.sent_in == number).nonzero().flatten()
            read = functools.partial(_parts, view, messages)
            for pseudonym, one in self.of_round(read, view.example_counts[messages], pool, generator):
                parts.setdefault(pseudonym, []).append(one)
        together = {pseudonym: _summed(own) for pseudonym, own in parts.items()}
        return {number: one.of_members() if one.approximate else one for number, one in together.items()}

    def of_round(
        self, read: Callable[[], Iterable[RoundView]], counts: Tensor, pool: Pool, generator: torch.Generator
    ) -> Iterator[tuple[int, Fit]]:
        """Yields the pseudonym of each client in a round, and the fit of its update.

        Args:
            read: reads the round in parts of bounded size; a second time if there are several.
            counts: ``(V,)`` examples of the clients, in any order.
            pool: candidates.
            generator: generator of the sketch and of simulated clients.
        """
        _check_step_sums(pool)
        local, steps = pool.learner.local, pool.learner.steps(counts)
        adam, single = local.optimizer == "adam", bool((steps == 1).all())
        sketched, parts = list[Tensor](), list[RoundView]()
        for part in read():
            if not sketched:
                effects, noise = self._effects(part, counts, pool, generator)
            sketched.append(effects.sketch.of(flat_updates(part, pool.learner, effects.dtype)[0]))
            parts = [part]
        together, place = torch.cat(sketched), -1
        common = effects.along([(parts[0].model, 1.0)], together) if single or noise > 0 else None
        one_pass = pool.learner.single_pass_batch is not None or (adam and local.epochs == 1 and local.updates is None)
        for part in parts if len(sketched) == 1 else read():
            sums, factors = _step_sums(part, pool), _clip_factors(part, pool, generator)
            rates = sums[:, None] / part.example_counts.clamp(min=1)[:, None] * factors
            own_steps = pool.learner.steps(part.example_counts).long().tolist()
            for number in range(part.victims):
                place += 1
                client = _Client(
                    effects=effects.with_steps(own_steps[number]),
                    sent=part.model,
                    delta={name: part.deltas[name][number] for name in effects.names},
                    together=together,
                    place=place,
                    records=int(part.example_counts[number]),
                    rate=float(rates[number]),
                    noise=noise * effects.sketch.factor,
                )
                found = client.fit_best(common, 0 if adam else self.refinements, own_steps[number], one_pass)
                if not noise:
                    found = dataclasses.replace(found.calibrated(), approximate=adam or local.updates is not None)
                report_progress((place + 1) / len(counts))
                yield int(part.pseudonyms[number]), found

    def _effects(
        self, view: RoundView, counts: Tensor, pool: Pool, generator: torch.Generator
    ) -> tuple[Effects, float]:
        """Effects of the candidates in a round with ``counts (V,)`` examples, and the declared noise."""
        local, steps = pool.learner.local, pool.learner.steps(counts)
        updates, names = flat_updates(view, pool.learner)
        noise = max(view.noise_scale(name) for name in names)
        adam = local.optimizer == "adam"
        exact_step = bool((steps == 1).all()) and not noise and not adam
        dtype = torch.float64 if exact_step else updates.dtype
        precision = torch.float64 if self.precision == "float64" or dtype == torch.float64 else torch.float32
        batch = local.batch_size or int(counts.max())
        scales = AdamScales(local, batch, int(steps.max())) if adam else None
        sketch = Sketch(updates.shape[1], self.sketch, generator)
        return Effects(pool.in_type(dtype), names, sketch, dtype, precision, scales), noise


@dataclass(frozen=True)
class CandidateFit(JointFitAttack):
    """Joint least squares of an update over all candidates: the part of it that only one candidate explains.

    The score is the posterior log odds of weight 1 in the joint fit (`JointFitAttack`), summed over rounds. Published
    attacks compare one candidate with the update, so all records of a client's classes resemble it. `predicted-auc` is
    what follows from the model of the noise, for members of an update that has no other records like the candidates; it
    is absent where the update refutes the model (`joint_fit.Fit.refuted`).

    Threat model: passive server that sees each client's update.

    The arguments are those of `JointFitAttack`.

    References:
        This project.
    """

    name: ClassVar[str] = "candidate-fit"
    with_prior = "likelihood"

    def run(self, view: History, *, generator: torch.Generator) -> RecordMembershipEstimate:
        found = self.fits(view, generator=generator)
        return RecordMembershipEstimate(
            senders=torch.tensor(list(found)),
            scores=torch.stack([one.log_odds for one in found.values()]),
            predicted=torch.tensor([predicted_auc(one) for one in found.values()]),
            duplicates=Pool.of(view).duplicates(),
        )


def _parts(view: History, messages: Tensor) -> Iterator[RoundView]:
    """Some messages ``(M,)`` of one round in views of bounded size, without declared noise that cannot be there."""
    yield from map(without_refuted_noise, view.each_part(messages))


def _evenly(view: History, count: int | None) -> list[int]:
    """Numbers of at most `count` rounds of a view, evenly spaced from the first to the last; None for all."""
    numbers: list[int] = torch.unique(view.sent_in).tolist()
    places = torch.linspace(0, len(numbers) - 1, min(count or len(numbers), len(numbers)))
    return [numbers[place] for place in places.round().long().tolist()]


def _summed(fits: list[Fit]) -> Fit:
    """One fit of several rounds' fits of a client: the sum of the scores, weighted by their shifts.

    Its variance has a component that the rounds share (`_shared_noise`), so that it says less than as many independent
    rounds.
    """
    shifts, scores, shares = (torch.stack([getattr(one, name) for one in fits]) for name in ("shift", "score", "share"))
    shared = _shared_noise(scores - shares * shifts)
    squares = shifts.square().sum(0)
    spread = ((1 - shared) * squares + shared * shifts.sum(0).square()).sqrt()
    spread = spread.where(spread > 0, 1)
    return dataclasses.replace(
        fits[-1],
        score=(shifts * scores).sum(0) / spread,
        shift=squares / spread,
        share=shares.mean(0),
        mean=torch.stack([one.mean for one in fits]).mean(0),
        seen_part=sum(one.seen_part for one in fits) / len(fits),
        total=sum(one.total for one in fits) / len(fits),
        total_error=sum(one.total_error for one in fits) / len(fits),
    )


def _shared_noise(scores: Tensor) -> float:
    """Mean correlation of a client's scores ``(R, M)`` between rounds, about their means, from 0 to 1.

    Records of the client that are no candidates are a fixed sum, nearly the same in each round, and most candidates are
    no members: what the scores of two rounds have in common is mostly noise that the rounds share.
    """
    count = len(scores)
    if count < 2:
        return 0.0
    common = scores @ scores.T
    own = float(common.diagonal().sum()) / count
    between = float(common.sum() - common.diagonal().sum()) / (count * (count - 1))
    return min(max(between / own, 0.0), 1.0) if own > 0 else 1.0


def _check_step_sums(pool: Pool) -> None:
    """Checks that updates are sums of gradients.

    Raises:
        ViewError: clients clip the gradients of single examples, or use Adadelta.
    """
    if pool.learner.local.example_clip is not None or pool.learner.local.optimizer == "adadelta":
        raise ViewError("expected clients that train by SGD or Adam and do not clip the gradients of single examples")


def _step_sums(view: RoundView, pool: Pool) -> Tensor:
    """``(V,)`` sum of each client's step sizes."""
    learner = pool.learner
    sums = learner.step_sums(view.example_counts)
    return learner.learning_rate * learner.steps(view.example_counts).double() if sums is None else sums


def _clip_factors(view: RoundView, pool: Pool, generator: torch.Generator) -> Tensor:
    """``(V, 1)`` factor by which clients clip, from simulated clients with random candidates; 1 without a clip."""
    pool, factors = pool.in_type(recorded_type(view)), torch.ones(view.victims, 1, dtype=torch.float64)
    clipped = [name for name in view.model if view.clip(name) is not None]
    if not clipped:
        return factors
    for count in torch.unique(view.example_counts).tolist():
        examples = torch.randint(len(pool), (_SIMULATED, count), generator=generator)
        own = mean_clip_factor(view, clipped[0], (pool.records, pool.labels), examples, generator=generator)
        factors[view.example_counts == count] = own
    return factors


@dataclass(frozen=True)
class _Client:
    """One update, by parameter (`delta`); `rate` is the sum of steps per record.

    The sketched updates of all clients of the round ``(V, D)``, without weight decay, are `together`, in which this one
    is at `place`.
    """

    effects: Effects
    sent: Mapping[str, Tensor]
    delta: Mapping[str, Tensor]
    together: Tensor
    place: int
    records: int
    rate: float
    noise: float

    def fit_best(self, common: tuple[Tensor, Basis] | None, refinements: int, steps: int, one_pass: bool) -> Fit:
        """Fit by products and a basis of all clients, on the line of one pass, or on the best of several paths."""
        if common is not None:
            return self.fit(common[0][:, self.place], common[1])
        if one_pass:
            return self.fit_one_pass()
        tried = [self.fit_along(self.line())]
        for _ in range(refinements):
            tried.append(self.fit_along(self.simulated(tried[-1].mean, steps)))
        return max(tried, key=lambda one: one.spanned)

    def fit(self, products: Tensor, basis: Basis) -> Fit:
        own = Basis(basis.values * self.rate**2, basis.vectors)
        seen = -self.rate * products.double()
        made = fit(own, seen, self.effects.pool.labels, records=self.records, noise=self.noise)
        return made if self.noise else self.with_energy(made)  # most of an update may be noise that is declared

    def fit_along(self, places: Places) -> Fit:
        products, basis = self.effects.along(places, self.together[self.place, None])
        return self.fit(products[:, 0], basis)

    def fit_one_pass(self) -> Fit:
        """Fit on the line to the client's own model, in the metric of the noise of the order of the mini-batches."""
        effects, places = self.effects, self.line()
        gram, products, inner = effects.apart(places, self.together)
        last = -sum((weight * own for own, (_, weight) in zip(inner, places, strict=False)), torch.zeros(()))
        inner.append(last / places[-1][1])
        weighted = [(own, weight) for own, (_, weight) in zip(inner, places, strict=True)]
        # Effects of some candidates pass for updates, to ask how much of them the fit sees.
        asked = torch.arange(0, len(gram), -(-len(gram) // _ASKED))
        both = torch.cat([products.to(gram), gram[:, asked]], dim=1)
        own_gram, white, spanned = whitened(gram, both, weighted, self.records)
        basis, labels = Basis.of(own_gram), effects.pool.labels
        scaled = Basis(basis.values * self.rate**2, basis.vectors)
        clients = len(self.together)
        own_products, own_effects = -self.rate * white[:, :clients], white[:, clients:]
        first = fit(scaled, own_products[:, self.place], labels, records=self.records)
        left = without_common_noise(scaled, own_products, labels, first, self.place)
        made = fit(scaled, left, labels, records=self.records)
        return dataclasses.replace(
            self.with_energy(made),
            spanned=float(spanned[self.place]),
            in_batches=True,
            seen_part=seen_part(scaled, made, asked, self.rate**2 * own_effects),
        )

    def with_energy(self, made: Fit) -> Fit:
        """The fit with the size of the update, by which `Fit.refuted` judges how much of it the candidates span."""
        update = self.together[self.place]
        return dataclasses.replace(made, energy=float(update.double().square().sum()), numbers=len(update))

    def line(self) -> Places:
        """Places on the line to the client's own model, and their weights."""
        if self.effects.adam is not None:  # of which the first steps are larger than the last
            steps = self.effects.adam.steps
            count = min(steps, _PLACES)
            return [(self._moved(self.sent, (n + 0.5) / count - 0.5 / steps), 1 / count) for n in range(count)]
        return [(self._moved(self.sent, way), weight) for way, weight in _QUADRATURE]

    def simulated(self, weights: Tensor, steps: int) -> Places:
        """Places on the path of gradient descent on the candidates with some weights, turned to the client's model.

        The weights are shifted, so that they add to the number of records: the update shows their sum badly.
        """
        pool, count = self.effects.pool, min(steps, _MOST_STEPS)
        shifted = weights + (self.records - weights.sum()) / len(weights)
        path, share = [dict(self.sent)], (shifted * pool.sizes).to(self.together.dtype)
        for _ in range(count):
            gradient = weighted_gradient(pool.learner, path[-1], pool.records, pool.labels, share)
            own = {name: path[-1][name] - self.rate / count * gradient[name] for name in self.delta}
            path.append({**path[-1], **own})
        missing = {name: self.sent[name] + change - path[-1][name] for name, change in self.delta.items()}
        places = min(count, _PLACES)
        chosen = [round((number + 0.5) * count / places - 0.5) for number in range(places)]
        return [
            ({**path[step], **{name: path[step][name] + step / count * missing[name] for name in missing}}, 1 / places)
            for step in chosen
        ]

    def _moved(self, model: Mapping[str, Tensor], way: float) -> dict[str, Tensor]:
        return {name: value + way * self.delta[name] if name in self.delta else value for name, value in model.items()}
