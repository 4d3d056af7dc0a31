"""Manipulated models: which records excite their units, who gets which model, and that a round reads single records."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import LinearDifferences, LinearInversion
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError, ViewError
from fedleak.core.view import RoundView
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.defenses.secure_aggregation import SecureSum
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.recordings.recording import Recording
from fedleak.server.canary_unit import CanaryUnit
from fedleak.server.imprint import Imprint, thresholds
from fedleak.server.model_manipulation import FirstLayer, ModelManipulation, SentModels
from fedleak.server.quantile_bias import QuantileBias
from fedleak.server.soliton import Soliton, soliton_degrees
from fedleak.server.sparse_imprint import SparseImprint
from fedleak.server.suppression import Suppression
from fedleak.server.trap_weights import TrapWeights
from tests.attacks.runs import of_noise, of_others, run
from tests.toys import quiet_trainer

UNITS, WIDTH = 120, 144
CLIENTS = torch.tensor([7, 3, 11, 5])
MLP = ClassifierOptions(name="mlp", hidden=UNITS, weights="normal")


def model() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = {"a.weight": (UNITS, WIDTH), "a.bias": (UNITS,), "b.weight": (10, UNITS), "b.bias": (10,)}
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def examples(count: int = 400, seed: int = 1) -> Tensor:
    return torch.rand(count, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sent(manipulation: ModelManipulation, known: Tensor | None = None) -> SentModels:
    given = examples() if known is None else known
    return manipulation.sent(model(), given, CLIENTS, generator=torch.Generator().manual_seed(2))


def active(made: dict[str, Tensor], records: Tensor) -> Tensor:
    return records @ made["a.weight"].T.double() + made["a.bias"].double() > 0


def test_imprint_has_one_record_between_two_quantiles() -> None:
    """By hand: units are active for all records above their quantile, one more from each unit to the next."""
    known = examples()
    made = sent(Imprint(), known).first
    bright, bounds = known.mean(1), torch.quantile(known.mean(1), torch.arange(1, UNITS).double() / UNITS)
    assert torch.equal(active(made, known)[:, 1:].sum(0), (bright[:, None] > bounds.float().double()).sum(0))
    assert bool(active(made, known)[:, 0].all())
    assert bool((made["b.weight"] == made["b.weight"][:, :1]).all())
    assert not torch.equal(made["b.weight"][0], made["b.weight"][1])  # softmax sees no sum over equal logits


def test_quantiles_of_laws_are_those_of_scipy() -> None:
    from scipy import stats

    values = torch.randn(1000, dtype=torch.float64) * 2 + 1
    levels = [j / 8 for j in range(1, 8)]
    mean, spread = float(values.mean()), float(values.std())
    normal, laplace = stats.norm(mean, spread), stats.laplace(mean, spread / 2**0.5)
    for law, known in (("normal", normal), ("laplace", laplace)):
        found = torch.tensor([known.ppf(p) for p in levels]).double()
        torch.testing.assert_close(thresholds(values, 8, law)[1:], found)


def test_sparse_imprint_gives_each_client_units_of_its_own() -> None:
    made = sent(SparseImprint())
    fires = torch.stack([active({n: v[c] for n, v in made.models.items()}, examples()).any(0) for c in range(4)])
    assert torch.equal(fires.sum(0) <= 1, torch.ones(UNITS, dtype=torch.bool))
    assert fires.sum(1).tolist() == [30, 30, 30, 30]
    with pytest.raises(InputError, match="units"):
        sent(SparseImprint(units=31))


def test_trap_weights_excite_fewer_units_with_a_smaller_scale() -> None:
    made = sent(TrapWeights(scale=0.5), torch.zeros(0, WIDTH)).first
    weight = made["a.weight"].double()
    assert torch.equal((weight < 0).sum(1), torch.full((UNITS,), WIDTH // 2))
    negative, positive = (weight.where(weight * sign > 0, 0.0).sum(1) for sign in (-1, 1))
    torch.testing.assert_close(positive, -0.5 * negative)
    shares = [active(sent(TrapWeights(scale=s)).first, examples()).double().mean() for s in (1.0, 0.95, 0.9)]
    assert shares == sorted(shares, reverse=True)


def test_quantile_bias_excites_a_unit_for_one_record_of_a_batch() -> None:
    """On inputs as the publication assumes them, independent and of the known mean and deviation."""
    made = sent(QuantileBias(records=20)).first
    assert abs(float(active(made, examples(4000, 5)).double().mean()) - 1 / 20) < 0.005


@pytest.mark.parametrize("inputs", ["uniform", "normal", "examples"])
def test_soliton_changes_biases_only_and_excites_units_as_the_law_says(inputs: Any) -> None:
    made = sent(Soliton(records=40, inputs=inputs), examples(4000)).first
    assert [name for name, value in made.items() if not torch.equal(value, model()[name])] == ["a.bias"]
    degrees = soliton_degrees(UNITS, 40, 0.05, 0.4, torch.Generator().manual_seed(2))
    share = active(made, examples(4000, 5)).double().mean(0)
    few = degrees < 30  # where all records shall pass, a normal law has no threshold
    torch.testing.assert_close(share[few], degrees[few].double() / 40, atol=0.04, rtol=0)


def test_soliton_law_is_the_robust_one() -> None:
    """By hand: the published formula, d by d."""
    records, c, failure = 20, 0.05, 0.4
    ripple = c * torch.tensor(records / failure).log() * records**0.5
    spike = min(round(float(records / ripple)), records)
    law = torch.tensor([1 / records, *(1 / (d * (d - 1)) for d in range(2, records + 1))])
    law[: spike - 1] += torch.tensor([float(ripple) / (d * records) for d in range(1, spike)])
    drawn = soliton_degrees(200_000, records, c, failure, torch.Generator().manual_seed(0))
    spiked = max(0.0, float(ripple * (ripple / failure).log() / records))
    law[spike - 1] += spiked
    torch.testing.assert_close(drawn.bincount(minlength=21)[1:] / 200_000, law / law.sum(), atol=4e-3, rtol=0)


def test_suppression_leaves_the_first_client_of_each_sum_the_global_model() -> None:
    made = sent(Suppression(participants=2))
    assert made.numbers(torch.tensor([11, 5, 7, 3])).tolist() == [0, 1, 0, 1]
    own = made.of(CLIENTS)
    assert torch.equal(own["a.weight"][0], model()["a.weight"])
    assert not bool(own["a.weight"][1].any())


def test_canary_unit_changes_for_the_target_only() -> None:
    """In 40 sums, half with the target: the unit is active for the target, and for none of 400 other records."""
    known = examples(600)
    manipulation = CanaryUnit(target=3, unit=5)
    made = sent(manipulation, known).first
    assert [name for name, value in made.items() if not torch.equal(value, model()[name])] == ["a.weight", "a.bias"]
    others = active(made, examples(400, 7))[:, 5].reshape(20, 20).any(1)
    assert bool(active(made, known[3:4])[0, 5])
    assert not bool(others.any())
    change = torch.zeros(2, UNITS).index_fill(1, torch.arange(10), 1e-3)
    change[1, 5] = 0
    assert manipulation.contains_target(change).tolist() == [True, False]


def test_strength_is_the_share_of_the_way_to_the_manipulated_model() -> None:
    whole, none, half = (sent(Imprint(strength=s)).first["a.bias"] for s in (1.0, 0.0, 0.5))
    torch.testing.assert_close(none, model()["a.bias"])
    torch.testing.assert_close(half, (whole + none) / 2)


def test_network_of_convolutions_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="mlp"):
        FirstLayer.of({"c.weight": torch.zeros(4, 1, 3, 3), "c.bias": torch.zeros(4), "b.weight": torch.zeros(2, 4)})


def test_server_without_examples_is_refused() -> None:
    with pytest.raises(InputError, match="auxiliary_per_class"):
        sent(Imprint(), torch.zeros(0, WIDTH))


def recorded(
    folder: Path, manipulation: ModelManipulation | None, *, rounds: int = 1, clients: int = 4, sums: int = 4
) -> Recording:
    """Sums of clients with five images each."""
    split = ClientSplit(clients=clients, examples_per_client=5)
    data = SyntheticImages(split=split, train_per_class=60, auxiliary_per_class=30, noise=0.3, seed=1)
    module = FederatedClassifier(
        network=MLP,
        local=LocalTraining(optimizer="sgd", learning_rate=0.1),
        defenses=[SecureSum(participants=sums)],
        manipulation=manipulation,
    )
    quiet_trainer(rounds, folder, DeltaRecorder()).fit(module, data)
    return Recording(folder / "deltas")


def view_of(recording: Recording) -> RoundView:
    return next(iter(recording.views(learner=None)))


def recovered(recording: Recording, attack: Attack, view: RoundView | None = None) -> Tensor:
    truth = recording.truth(view_of(recording))
    scores = run(attack, view_of(recording) if view is None else view, LinearEstimate).score(view_of(recording), truth)
    assert view is not None or int(scores.metrics["false-certified"].sum()) == 0
    return scores.metrics["recovered"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("manipulation", "least"),
    [
        (Imprint(statistic="random"), 0.7),
        (SparseImprint(statistic="random"), 0.5),
        (QuantileBias(records=20), 0.4),
        (Soliton(records=20), 0.9),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_records_of_a_sum_are_read_from_its_own_update_only(
    tmp_path: Path, manipulation: ModelManipulation, least: float
) -> None:
    recording = recorded(tmp_path, manipulation, clients=8)
    assert recording.manifest.config["manipulation"] == manipulation.name
    attacks = [LinearInversion()] + [LinearDifferences()] * ("imprint" in manipulation.name)
    for attack in attacks:
        assert float(recovered(recording, attack).mean()) >= least
        for decoupled in (of_others(view_of(recording)), of_noise(view_of(recording))):
            assert float(recovered(recording, attack, decoupled).mean()) == 0


@pytest.mark.integration
def test_honest_server_gets_few_records_of_a_sum(tmp_path: Path) -> None:
    recording = recorded(tmp_path, None)
    assert recording.manifest.config["manipulation"] is None
    with pytest.raises(ViewError, match="imprint"):
        run(LinearDifferences(), view_of(recording), LinearEstimate)


@pytest.mark.integration
def test_sum_under_suppression_is_the_update_of_the_target(tmp_path: Path) -> None:
    """But for the last bias; the target is the first of the cohort, whose update is recorded alone."""
    alone = view_of(recorded(tmp_path / "alone", None, sums=1))
    view = view_of(recorded(tmp_path / "sum", Suppression(participants=4)))
    assert view.client_models is not None
    for name, value in view.deltas.items():
        own = (alone.deltas[name] - value).flatten(1).abs().amax(1).min() <= 1e-9
        assert bool(own) == (name != "output.bias")


@pytest.mark.integration
def test_rounds_before_the_first_manipulated_one_are_honest_and_train(tmp_path: Path) -> None:
    recording = recorded(tmp_path, Imprint(first_round=1), rounds=3)
    honest, first, second = (recording.model(number) for number in range(3))
    assert not torch.equal(honest["output.bias"], first["output.bias"])  # round 0 trained
    assert torch.equal(first["output.bias"], second["output.bias"])  # round 1 did not
    assert bool((first["body.1.weight"] == first["body.1.weight"][0, 0]).all())


def test_activation_other_than_relu_is_refused() -> None:
    with pytest.raises(InputError, match="relu"):
        FederatedClassifier(network=ClassifierOptions(name="mlp", activation="tanh"), manipulation=Imprint())
