"""Membership and source by a joint fit of every update by all candidates."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedleak.attacks.record_membership.client_update import (
    MOST_PLACES,
    ClientUpdate,
    SharedLine,
    line_of,
    places_on_line,
)
from fedleak.attacks.record_membership.effects import AdamScales, Effects, Sketch
from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.joint_fit import Basis
from fedleak.attacks.record_membership.pool import (
    KNOWS,
    NEEDS,
    GradientProgress,
    PoolAttack,
    ServerPool,
    flat_updates,
    recorded_type,
)
from fedleak.attacks.record_membership.update_fit import Fit, predicted_auc, summed_over_rounds
from fedleak.client.simulated_clients import mean_clip_factor
from fedleak.core.declared_noise import without_refuted_noise
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.memory import gibibytes, memory_bound
from fedleak.core.progress import report_progress
from fedleak.core.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_BYTES_OF_PAIR = 48
"""Memory for each pair of candidates: six float64 numbers."""
_KNOWS = f"{KNOWS}. Exact only if the pool has all training records"
_SLOW_WORK = 1e12
"""Operations for one gradient of each candidate that take half a minute or more."""
_SLOWER_IN_FLOAT64 = 2.5
"""Time of a gradient in float64 over that in float32."""
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

    Without declared noise, the scores are in units of their spread over the candidates (`update_fit.Fit.calibrated`),
    so that the prediction does not trust a model of noise that does not hold; that takes a pool of which each client
    holds a minority. Rounds share a part of the noise (`update_fit.summed_over_rounds`). Under Adam, and where each
    step has a random batch of its own, effects are right only on average, so members' scores have a law that the scores
    show (`update_fit.Fit.of_members`).

    Declared noise bounds the variance from below; effects are then taken at the sent model, because the client's own is
    noisy, and scaled by the clip of simulated clients. Noise that the updates are too short to hold is not expected.

    Attributes:
        rounds: largest number of rounds that are fitted, evenly spaced from the first to the last; None for all.
        sketch: largest number of numbers of an update: of more, random sums with random signs (a count sketch).
        refinements: number of simulated paths for an update of several passes.
        most_work: operations for the gradients of candidates in a round, of which a processor core does about 3e10
            in a second. With paths of their own for all clients that need more, all share the way to the mean of their
            models, without simulated paths.
        precision: of the inner products of effects. In float32, which takes half the time, directions with less than
            1e-6 of the largest variance are lost: too many where all records have nearly the same gradient. One step
            without noise is always computed in float64, gradients and updates too: in float32, members are
            missed where records are alike.

    Raises:
        ViewError: clients clip the gradients of single examples, or use Adadelta; the pairs of candidates need more
            than half of the memory.

    References:
        This project; [Charikar02], for the sketch.
    """

    cost: ClassVar[str] = (
        "seconds per client and round, tens of seconds for 2,000 candidates; a minute after several passes"
    )
    threat_model: ClassVar[ThreatModel] = ThreatModel(sees="each client's update", knows=_KNOWS, needs=NEEDS)

    rounds: PositiveInt | None = None
    sketch: PositiveInt = 32768
    refinements: NonNegativeInt = 5
    most_work: PositiveFloat = 2.5e13
    precision: Literal["float32", "float64"] = "float32"

    def fits(self, view: History, *, generator: torch.Generator) -> dict[int, Fit]:
        """Fit of every client's updates, by pseudonym, computed once for all attacks on a view.

        The scores of several rounds are weighted by their shifts (`update_fit.summed_over_rounds`), and shares are
        averaged.
        """
        options = self.rounds, self.sketch, self.refinements, self.precision, self.most_work
        return view.shared.value(("joint fit", options), lambda: self._fits(view, generator))

    def _fits(self, view: History, generator: torch.Generator) -> dict[int, Fit]:
        pool = ServerPool.of(view)
        size = _BYTES_OF_PAIR * len(pool) ** 2
        if size > memory_bound():
            raise ViewError(
                f"it compares {len(pool):,} candidates with each other, which takes {gibibytes(size)}, and it may use "
                f"{gibibytes(memory_bound())}; record fewer candidates"
            )
        fits_of_rounds = dict[int, list[Fit]]()
        for number in _evenly(view, self.rounds):
            messages = (view.sent_in == number).nonzero().flatten()
            read = functools.partial(_parts, view, messages)
            for pseudonym, round_fit in self.of_round(read, view.example_counts[messages], pool, generator):
                fits_of_rounds.setdefault(pseudonym, []).append(round_fit)
        fits = {}
        for pseudonym, round_fits in fits_of_rounds.items():
            client_fit = summed_over_rounds(round_fits)
            if client_fit.approximate:
                client_fit = client_fit.of_members()
            fits[pseudonym] = client_fit
        return fits

    def of_round(
        self, read: Callable[[], Iterable[RoundView]], counts: Tensor, pool: ServerPool, generator: torch.Generator
    ) -> Iterator[tuple[int, Fit]]:
        """Yields the pseudonym of each client in a round, and the fit of its update.

        Args:
            read: reads the round in parts of bounded size; a second time if there are several.
            counts: ``(V,)`` examples of the clients, in any order.
            pool: candidates.
            generator: generator of the sketch and of simulated clients.
        """
        _check_step_sums(pool)
        local = pool.learner.local
        is_adam = local.optimizer == "adam"
        client_steps = pool.learner.steps(counts)
        is_one_step = bool((client_steps == 1).all())
        # First the sketches of all updates: what clients of a round share needs them together.
        sketched = list[Tensor]()
        parts = list[RoundView]()
        mean_delta = dict[str, Tensor]()
        for part in read():
            if not sketched:
                effects, noise = self._effects(part, counts, pool, generator)
            sketched.append(effects.sketch.of(flat_updates(part, pool.learner, effects.dtype)[0]))
            for name in effects.names:
                mean_of_part = part.deltas[name].sum(0) / len(counts)
                mean_delta[name] = mean_of_part + mean_delta.get(name, torch.zeros(()))
            parts = [part]
        round_updates = torch.cat(sketched)
        # Paths are simulated by plain gradient descent.
        refinements = 0 if is_adam else self.refinements
        one_pass = _is_one_pass(pool)
        # Of one step, and under noise, effects are those at the sent model: the same for all clients.
        common: tuple[Tensor, Basis] | None = None
        shared_line: SharedLine | None = None
        if is_one_step or noise > 0:
            effects = _with_progress(effects, 1)
            common = effects.along([(parts[0].model, 1.0)], round_updates)
        elif self._is_too_much(effects, one_pass, client_steps):
            # All clients share one line, whose effects pass for those of one pass over the data.
            line = line_of(effects, parts[0].model, mean_delta)
            effects = _with_progress(effects, effects.passes(line))
            shared_line = SharedLine.along(line, effects, round_updates)
            one_pass = True
        else:
            line = line_of(effects, parts[0].model, mean_delta)
            passes = effects.passes(line) + self._simulated_places(effects, one_pass)
            effects = _with_progress(effects, passes * len(counts))
        is_approximate = is_adam or local.updates is not None
        # Then the fit of each client; a round in one part is still in memory.
        fitted = 0
        for part in parts if len(sketched) == 1 else read():
            rates = _rates(part, pool, generator)
            steps_of_part = pool.learner.steps(part.example_counts).long().tolist()
            for number in range(part.victims):
                client = ClientUpdate(
                    effects=effects.with_steps(steps_of_part[number]),
                    sent=part.model,
                    delta={name: part.deltas[name][number] for name in effects.names},
                    round_updates=round_updates,
                    row=fitted,
                    records=int(part.example_counts[number]),
                    rate=float(rates[number]),
                    noise=noise * effects.sketch.factor,
                    shared_line=shared_line,
                )
                client_fit = client.fit_best(common, refinements, steps_of_part[number], one_pass)
                if not noise:
                    client_fit = dataclasses.replace(client_fit.calibrated(), approximate=is_approximate)
                fitted += 1
                if effects.pool.progress is None:
                    report_progress(fitted / len(counts))
                yield int(part.pseudonyms[number]), client_fit

    def _simulated_places(self, effects: Effects, one_pass: bool) -> int:
        """Number of gradients of each candidate on a client's simulated paths."""
        if one_pass or effects.adam is not None:
            return 0
        return MOST_PLACES * self.refinements

    def _is_too_much(self, effects: Effects, one_pass: bool, steps: Tensor) -> bool:
        """Whether paths of their own take too much work for clients, which all make as many ``steps (V,)``."""
        places = places_on_line(effects) + self._simulated_places(effects, one_pass)
        is_too_much = _work(effects.pool) * places * len(steps) > self.most_work
        return is_too_much and bool((steps == steps[0]).all())

    def _effects(
        self, view: RoundView, counts: Tensor, pool: ServerPool, generator: torch.Generator
    ) -> tuple[Effects, float]:
        """Effects of the candidates in a round with ``counts (V,)`` examples, and the declared noise."""
        local = pool.learner.local
        steps = pool.learner.steps(counts)
        updates, names = flat_updates(view, pool.learner)
        noise = max(view.noise_scale(name) for name in names)
        is_adam = local.optimizer == "adam"
        # Effects of one step without noise are exact, so that rounding would be the largest error. Gradients that would
        # take too long are left at float32, which takes less than half of the time; their products are not.
        is_exact = bool((steps == 1).all()) and not noise and not is_adam
        is_slow = _SLOWER_IN_FLOAT64 * _work(pool) > self.most_work
        dtype = torch.float64 if is_exact and not is_slow else updates.dtype
        precision = torch.float32
        if is_exact or self.precision == "float64" or dtype == torch.float64:
            precision = torch.float64
        adam_scales = None
        if is_adam:
            batch = local.batch_size or int(counts.max())
            adam_scales = AdamScales(local, batch, int(steps.max()))
        effects = Effects(
            pool=pool.in_type(dtype),
            names=names,
            sketch=Sketch(updates.shape[1], self.sketch, generator),
            dtype=dtype,
            precision=precision,
            adam=adam_scales,
        )
        return effects, noise


@dataclass(frozen=True)
class CandidateFit(JointFitAttack):
    """Joint least squares of an update over all candidates: the part of it that only one candidate explains.

    The score is the posterior log odds of weight 1 in the joint fit (`JointFitAttack`), summed over rounds. Published
    attacks compare one candidate with the update, so all records of a client's classes resemble it. `predicted-auc` is
    what follows from the model of the noise, for members of an update that has no other records like the candidates; it
    is absent where the update refutes the model (`update_fit.Fit.refuted`).

    Threat model: passive server that sees each client's update.

    The arguments are those of `JointFitAttack`.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import CandidateFit
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = CandidateFit()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        1.0
    """

    name: ClassVar[str] = "candidate-fit"
    with_prior = "likelihood"

    def run(self, view: History, *, generator: torch.Generator) -> RecordMembershipEstimate:
        fits = self.fits(view, generator=generator)
        return RecordMembershipEstimate(
            senders=torch.tensor(list(fits)),
            scores=torch.stack([client_fit.log_odds for client_fit in fits.values()]),
            predicted=torch.tensor([predicted_auc(client_fit) for client_fit in fits.values()]),
            duplicates=ServerPool.of(view).duplicates(),
        )


def _work(pool: ServerPool) -> float:
    """Operations for a gradient of each candidate."""
    return pool.learner.gradient_work(pool.records) * len(pool)


def _with_progress(effects: Effects, places: int) -> Effects:
    """The effects with a report of progress after some gradients, where these take long, of those at so many places."""
    if _work(effects.pool) <= _SLOW_WORK:
        return effects
    progress = GradientProgress(places * len(effects.pool))
    return dataclasses.replace(effects, pool=dataclasses.replace(effects.pool, progress=progress))


def _parts(view: History, messages: Tensor) -> Iterator[RoundView]:
    """Some messages ``(M,)`` of one round in views of bounded size, without declared noise that cannot be there."""
    yield from map(without_refuted_noise, view.each_part(messages))


def _evenly(view: History, count: int | None) -> list[int]:
    """Numbers of at most `count` rounds of a view, evenly spaced from the first to the last; None for all."""
    numbers: list[int] = torch.unique(view.sent_in).tolist()
    indices = torch.linspace(0, len(numbers) - 1, min(count or len(numbers), len(numbers)))
    return [numbers[index] for index in indices.round().long().tolist()]


def _check_step_sums(pool: ServerPool) -> None:
    """Checks that updates are sums of gradients.

    Raises:
        ViewError: clients clip gradients, or use Adadelta.
    """
    local = pool.learner.local
    if local.example_clip is not None or local.max_grad_norm is not None or local.optimizer == "adadelta":
        raise ViewError("expected clients that train by SGD or Adam and do not clip the gradients of their steps")


def _is_one_pass(pool: ServerPool) -> bool:
    """Whether clients make one pass over their data, by plain SGD or by Adam."""
    local = pool.learner.local
    is_one_pass_of_adam = local.optimizer == "adam" and local.epochs == 1 and local.updates is None
    return pool.learner.single_pass_batch is not None or is_one_pass_of_adam


def _rates(view: RoundView, pool: ServerPool, generator: torch.Generator) -> Tensor:
    """``(V, 1)`` sum of each client's step sizes over the number of its records, times the factor of its clip."""
    step_sums = _step_sums(view, pool)[:, None]
    clip_factors = _clip_factors(view, pool, generator)
    return step_sums / view.example_counts.clamp(min=1)[:, None] * clip_factors


def _step_sums(view: RoundView, pool: ServerPool) -> Tensor:
    """``(V,)`` sum of each client's step sizes."""
    learner = pool.learner
    sums = learner.step_sums(view.example_counts)
    if sums is not None:
        return sums
    # Of an optimizer that scales gradients: `AdamScales` are in parts of the learning rate.
    return learner.learning_rate * learner.steps(view.example_counts).double()


def _clip_factors(view: RoundView, pool: ServerPool, generator: torch.Generator) -> Tensor:
    """``(V, 1)`` factor by which clients clip, from simulated clients with random candidates; 1 without a clip."""
    pool = pool.in_type(recorded_type(view))
    factors = torch.ones(view.victims, 1, dtype=torch.float64)
    clipped = [name for name in view.model if view.clip(name) is not None]
    if not clipped:
        return factors
    # Clients with equally many examples clip alike on average: one simulation for each number.
    for count in torch.unique(view.example_counts).tolist():
        examples = torch.randint(len(pool), (_SIMULATED, count), generator=generator)
        candidates = pool.records, pool.labels
        factor = mean_clip_factor(view, clipped[0], candidates, examples, generator=generator)
        factors[view.example_counts == count] = factor
    return factors
