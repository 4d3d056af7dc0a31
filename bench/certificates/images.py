"""Images certified by `linear-inversion`: few and even grey levels, coarse updates, and learners that are not declared.

The clients train in plain torch and send differences of parameters, so that rounding is that of a real system.
"""

import copy
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from attacks.reconstruction import LinearInversion
from attacks.reconstruction.linear_layer import LinearEstimate
from bench.certificates import Counts
from client.engine.local_hyperparameters import LocalTraining
from client.image_classifier import ImageClassifierAlgorithm
from client.nets.classifiers import ClassifierOptions
from protocol.errors import ViewError
from protocol.seeding import generator_for
from protocol.view import RoundView

CLIENTS = 12
SIDE = 12
"""Pixels of a side of a drawn image; scikit-learn's digits have 8."""

Pictures = tuple[Tensor, Tensor]
"""Images ``(M, D)`` as whole levels from 0 to 255, float64, and their classes ``(M,)``."""
Updates = list[dict[str, Tensor]]
Sent = Callable[[Updates, torch.Generator], Updates]
"""From the clients' updates to what they send."""
Loss = Callable[[Tensor, Tensor], Tensor]
Change = Callable[[Tensor, torch.Generator], Tensor]


@functools.cache
def _digits() -> Pictures:
    digits = load_digits()
    return torch.tensor(digits.data), torch.tensor(digits.target)


def digits_of_17_levels() -> Pictures:
    """scikit-learn's digits as they are: 17 grey levels, spread over 0 to 255."""
    shades, classes = _digits()
    return (shades / 16 * 255).round(), classes


def digits_by_16() -> Pictures:
    """4 bits, shifted: levels 0, 16, .., 240."""
    shades, classes = _digits()
    return shades.clamp(max=15) * 16, classes


def digits_by_17() -> Pictures:
    """4 bits, scaled: levels 0, 17, .., 255."""
    shades, classes = _digits()
    return shades.clamp(max=15) * 17, classes


def digits_of_7_bits() -> Pictures:
    """Even levels."""
    levels, classes = digits_of_17_levels()
    return levels // 2 * 2, classes


def black_and_white() -> Pictures:
    """Levels 0 and 255."""
    shades, classes = _digits()
    return (shades > 7).double() * 255, classes


@functools.cache
def rectangles() -> Pictures:
    """8-bit images of a random rectangle each on black."""
    draws = generator_for(0, "rectangles")
    place = torch.rand(4000, 4, generator=draws)
    low, size = (place[:, :2] * 6).long(), (place[:, 2:] * 4).long() + 3
    axis = torch.arange(SIDE)
    inside = (axis >= low[..., None]) & (axis < (low + size)[..., None])
    levels = torch.randint(1, 256, (len(place), SIDE, SIDE), generator=draws)
    drawn = levels * (inside[:, 0, :, None] & inside[:, 1, None, :])
    return drawn.flatten(1).double(), torch.randint(10, (len(place),), generator=draws)


@functools.cache
def portraits() -> Pictures:
    """8-bit images that are bright and alike: a common one, with a tenth of its contrast changed smoothly in each."""
    draws = generator_for(0, "portraits")
    rough = torch.randn(4001, 1, 4, 4, generator=draws)
    smooth = functional.interpolate(rough, size=SIDE, mode="bicubic", align_corners=True).flatten(1).double()
    levels = 150 + 40 * smooth[:1] + 12 * smooth[1:] + 2 * torch.randn(4000, SIDE**2, generator=draws)
    return levels.round().clamp(0, 255), torch.randint(10, (4000,), generator=draws)


def even_portraits() -> Pictures:
    """The same of even levels."""
    levels, classes = portraits()
    return levels // 2 * 2, classes


@dataclass(frozen=True)
class Federation:
    """Clients of one round and what the server is made to believe of them.

    Attributes:
        pictures: the images from which clients draw.
        records: of a client.
        neurons: of the first layer.
        classes: of the network; images of other classes are left out.
        double: float64 instead of float32.
        epochs: local steps, each on all records.
        rate: learning rate.
        loss: of the clients; the server believes in cross-entropy.
        warm: rounds of training before.
        output_scale: factor of the initial weights of the last layer.
        sent: change of the updates before they are sent.
        known: whether the server knows the clients' algorithm.
        said: factors of the learning rate and the number of records that the server believes in.
        repeated: whether each client has half of its records twice.
    """

    pictures: Callable[[], Pictures] = digits_of_17_levels
    records: int = 20
    neurons: int = 64
    classes: int = 10
    double: bool = False
    epochs: int = 1
    rate: float = 0.1
    loss: Loss = functional.cross_entropy
    warm: int = 0
    output_scale: float = 1.0
    sent: Sent | None = None
    known: bool = True
    said: tuple[float, float] = (1.0, 1.0)
    repeated: bool = False
    pooled: int = 1
    """Clients whose updates are added without the server's knowledge."""


def trained(model: nn.Module, images: Tensor, labels: Tensor, federation: Federation) -> dict[str, Tensor]:
    """Difference of parameters after a client's steps."""
    network = copy.deepcopy(model)
    for _ in range(federation.epochs):
        parameters = list(network.parameters())
        gradients = torch.autograd.grad(federation.loss(network(images), labels), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(federation.rate * gradient)
    before = dict(model.named_parameters())
    return {name: (value - before[name]).detach() for name, value in network.named_parameters()}


def audited(federation: Federation, seed: int) -> Counts:
    """What the attack certifies of one round of a federation."""
    levels, classes = federation.pictures()
    usable = (classes < federation.classes).nonzero().flatten()
    draws = generator_for(seed, "certificates")
    dtype = torch.float64 if federation.double else torch.float32
    # Clients have few classes each, so that records of one class meet at a neuron.
    holdings = list[Tensor]()
    for _ in range(CLIENTS):
        preference = torch.rand(federation.classes, generator=draws) ** 6
        weights = preference[classes[usable]] + 1e-6
        drawn = usable[torch.multinomial(weights.double(), federation.records, generator=draws)]
        if federation.repeated:
            half = federation.records // 2
            drawn = torch.cat([drawn[:half], drawn[:half], drawn[2 * half :]])
        holdings.append(drawn)
    images = (levels / 255).to(dtype)

    torch.manual_seed(seed)
    hidden = nn.Linear(levels.shape[1], federation.neurons)
    output = nn.Linear(federation.neurons, federation.classes)
    model = nn.Sequential(hidden, nn.ReLU(), output).to(dtype)
    with torch.no_grad():
        output.weight *= federation.output_scale
    for _ in range(federation.warm):
        changes = [trained(model, images[own], classes[own], federation) for own in holdings]
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.add_(torch.stack([change[name] for change in changes]).mean(0))

    updates: Updates = [trained(model, images[own], classes[own], federation) for own in holdings]
    if federation.sent is not None:
        updates = federation.sent(updates, draws)
    if federation.pooled > 1:
        starts = range(0, CLIENTS, federation.pooled)
        updates = [
            {
                name: sum((update[name] for update in updates[start : start + federation.pooled]), torch.zeros(()))
                for name in updates[0]
            }
            for start in starts
        ]
        holdings = [torch.cat(holdings[start : start + federation.pooled]) for start in starts]
    return counted(view_of(federation, model, updates, images), holdings, levels)


def view_of(federation: Federation, model: nn.Module, updates: Updates, images: Tensor) -> RoundView:
    """What the server sees and believes."""
    names = {"0.weight": "body.1.weight", "0.bias": "body.1.bias", "2.weight": "output.weight", "2.bias": "output.bias"}
    rate_factor, count_factor = federation.said
    learner = ImageClassifierAlgorithm(
        network=ClassifierOptions(name="mlp", hidden=federation.neurons),
        image_shape=(1, 1, images.shape[1]),
        num_classes=federation.classes,
        local=LocalTraining(optimizer="sgd", learning_rate=federation.rate * rate_factor, epochs=federation.epochs),
    )
    return RoundView(
        round=0,
        pseudonyms=torch.arange(len(updates)),
        example_counts=torch.full((len(updates),), round(federation.records * count_factor)),
        deltas={names[name]: torch.stack([update[name] for update in updates]) for name in names},
        model={names[name]: value.detach() for name, value in model.named_parameters()},
        algorithm=learner if federation.known else None,
        auxiliary={} if federation.known else {"images": images[-8:].reshape(8, 1, 1, -1)},
    )


def counted(view: RoundView, holdings: Sequence[Tensor], levels: Tensor) -> Counts:
    """Certified, false and recovered records of all clients."""
    records = sum(len(own) for own in holdings)
    try:
        estimate = LinearInversion()(view, generator=generator_for(0, "attack"))
    except ViewError as error:
        return Counts(records=records, refusal=str(error))
    assert isinstance(estimate, LinearEstimate)
    certified = false = recovered = 0
    for victim, own in enumerate(holdings):
        count = int(estimate.count[victim])
        found = (estimate.records[victim, :count].flatten(1) * 255).round().to(torch.uint8)
        certain = estimate.certified[victim, :count]
        truth = Counter(_keys(levels[own].to(torch.uint8)))
        certain_counts = Counter(_keys(found[certain]))
        certified += int(certain.sum())
        false += (certain_counts - truth).total()
        recovered += (Counter(_keys(found)) & truth).total()
    return Counts(certified=certified, false=false, recovered=recovered, records=records)


def _keys(levels: Tensor) -> list[bytes]:
    return [row.numpy().tobytes() for row in levels]


# What clients may do to an update before they send it.


def each(change: Change) -> Sent:
    """A change of each tensor of each client by itself."""

    def changed(updates: Updates, draws: torch.Generator) -> Updates:
        return [{name: change(value, draws) for name, value in update.items()} for update in updates]

    return changed


def quantised(bits: int, *, by_row: bool = False, at_random: bool = False) -> Sent:
    """Each tensor, or row, on a symmetric grid of its own."""

    def change(value: Tensor, draws: torch.Generator) -> Tensor:
        rows = value.flatten(1) if value.dim() > 1 else value[None]
        largest = rows.abs().amax(1, keepdim=True) if by_row else rows.abs().max()
        step = largest / (2 ** (bits - 1) - 1) + 1e-30
        shift = torch.rand(rows.shape, generator=draws).to(rows) if at_random else torch.full_like(rows, 0.5)
        rounded: Tensor = (rows / step + shift).floor() * step
        return rounded.reshape(value.shape)

    return each(change)


def quantised_between(bits: int) -> Sent:
    """Each tensor on a grid from its smallest to its largest number."""

    def change(value: Tensor, _: torch.Generator) -> Tensor:
        low, high = value.min(), value.max()
        step = (high - low) / (2**bits - 1) + 1e-30
        rounded: Tensor = ((value - low) / step).round() * step + low
        return rounded

    return each(change)


def stored_as(dtype: torch.dtype) -> Sent:
    return each(lambda value, _: value.to(dtype).to(value.dtype))


def noisy(deviation: float) -> Sent:
    return each(lambda value, draws: value + deviation * torch.randn(value.shape, generator=draws).to(value))


def sparse(share: float) -> Sent:
    """Only the largest numbers of an update, over all its tensors."""

    def changed(updates: Updates, _: torch.Generator) -> Updates:
        made: Updates = []
        for update in updates:
            sizes = torch.cat([value.flatten().abs() for value in update.values()])
            least = sizes.topk(int(share * len(sizes))).values[-1]
            made.append({name: value * (value.abs() >= least) for name, value in update.items()})
        return made

    return changed


def masked(share: float) -> Sent:
    """A random share of the numbers."""
    return each(lambda value, draws: value * (torch.rand(value.shape, generator=draws) < share))


def clipped(norm: float) -> Sent:
    def changed(updates: Updates, _: torch.Generator) -> Updates:
        made: Updates = []
        for update in updates:
            size = torch.cat([value.flatten() for value in update.values()]).norm()
            made.append({name: value * min(1.0, norm / float(size)) for name, value in update.items()})
        return made

    return changed


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs - functional.one_hot(labels, outputs.shape[1])).square().mean()


def smoothed(outputs: Tensor, labels: Tensor) -> Tensor:
    loss: Tensor = functional.cross_entropy(outputs, labels, label_smoothing=0.1)
    return loss


def weighted(outputs: Tensor, labels: Tensor) -> Tensor:
    weights = torch.linspace(0.2, 2, outputs.shape[1]).to(outputs)
    loss: Tensor = functional.cross_entropy(outputs, labels, weight=weights)
    return loss


FEW_LEVELS = (digits_of_17_levels, digits_by_16, digits_by_17, digits_of_7_bits)
SIZES = ((40, 32), (20, 32), (20, 64), (40, 128), (10, 64))
"""Records and neurons."""


def conditions() -> Mapping[str, Callable[[int], Counts]]:
    """Each condition by its name."""
    made = dict[str, Federation]()
    for pictures in FEW_LEVELS:
        name = pictures.__name__.replace("_", " ")
        for records, neurons in SIZES:
            made[f"{name}, {records} records, {neurons} neurons"] = Federation(pictures, records, neurons)
        made[f"{name}, 20 records, 64 neurons, algorithm unknown"] = Federation(pictures, known=False)

    for bits in (16, 12, 10, 8, 6, 4):
        for records, neurons in ((40, 32), (20, 64), (10, 64)):
            made[f"{bits} bits a number, {records} records, {neurons} neurons"] = Federation(
                records=records, neurons=neurons, sent=quantised(bits)
            )
    even = Federation(digits_of_7_bits)
    made |= {
        "8 bits, rounded at random, even levels": replace(even, sent=quantised(8, at_random=True)),
        "8 bits, a scale for each neuron, even levels": replace(even, sent=quantised(8, by_row=True)),
        "8 bits from the smallest to the largest, even levels": replace(even, sent=quantised_between(8)),
        "8 bits, algorithm unknown, even levels": replace(even, sent=quantised(8), known=False),
        "16 bits, algorithm unknown, even levels": replace(even, sent=quantised(16), known=False),
        "8 bits, 2 updates added, even levels": replace(even, sent=quantised(8), pooled=2),
        "largest tenth, even levels": replace(even, sent=sparse(0.1)),
        "largest half, even levels": replace(even, sent=sparse(0.5)),
        "largest half, algorithm unknown, even levels": replace(even, sent=sparse(0.5), known=False),
        "random half, even levels": replace(even, sent=masked(0.5)),
        "float16, even levels": replace(even, sent=stored_as(torch.float16)),
        "float16, algorithm unknown, even levels": replace(even, sent=stored_as(torch.float16), known=False),
        "bfloat16, even levels": replace(even, sent=stored_as(torch.bfloat16)),
        "noise of 1e-5, even levels": replace(even, sent=noisy(1e-5)),
        "noise of 1e-7, even levels": replace(even, sent=noisy(1e-7)),
        "squared error, even levels": replace(even, loss=squared_error),
        "label smoothing, even levels": replace(even, loss=smoothed),
        "class weights, even levels": replace(even, loss=weighted),
        "learning rate said to be twice what it is, even levels": replace(even, said=(2.0, 1.0)),
        "learning rate said to be half of what it is, even levels": replace(even, said=(0.5, 1.0)),
        "twice the examples said, even levels": replace(even, said=(1.0, 2.0)),
        "clipped, even levels": replace(even, sent=clipped(0.01)),
        "2 updates added, even levels": replace(even, pooled=2),
        "2 updates added, algorithm unknown, even levels": replace(even, pooled=2, known=False),
        "half of the records twice, even levels": replace(even, repeated=True),
        "half of the records twice, algorithm unknown, even levels": replace(even, repeated=True, known=False),
        "64 records, 32 neurons, even levels": replace(even, records=64, neurons=32),
        "64 records, 64 neurons, even levels": replace(even, records=64),
        "64 records, 64 neurons, algorithm unknown, even levels": replace(even, records=64, known=False),
        "3 steps, even levels": replace(even, epochs=3),
        "3 steps, algorithm unknown, even levels": replace(even, epochs=3, known=False),
        "after 30 rounds, even levels": replace(even, warm=30, rate=0.5),
        "after 30 rounds, algorithm unknown, even levels": replace(even, warm=30, rate=0.5, known=False),
        "small last layer, even levels": replace(even, output_scale=1e-3),
        "small last layer, algorithm unknown, even levels": replace(even, output_scale=1e-3, known=False),
        "2 classes, even levels": replace(even, classes=2),
        "2 classes, algorithm unknown, even levels": replace(even, classes=2, known=False),
        "float64, even levels": replace(even, double=True),
        "float64, algorithm unknown, even levels": replace(even, double=True, known=False),
        "black and white": Federation(black_and_white),
        "black and white, algorithm unknown": Federation(black_and_white, known=False),
        "rectangles, float32": Federation(rectangles, neurons=128),
        "rectangles, float64": Federation(rectangles, neurons=128, double=True),
        "rectangles, algorithm unknown": Federation(rectangles, neurons=128, known=False),
        "portraits, float32": Federation(portraits, neurons=128),
        "portraits, float64": Federation(portraits, neurons=128, double=True),
        "even portraits, float32": Federation(even_portraits, neurons=128),
        "even portraits, algorithm unknown": Federation(even_portraits, neurons=128, known=False),
        "4 even portraits, 8 neurons, 2 classes": Federation(even_portraits, records=4, neurons=8, classes=2),
        "2 even portraits, 8 neurons, 2 classes": Federation(even_portraits, records=2, neurons=8, classes=2),
        "4 images, 8 neurons, 2 classes, even levels": replace(even, records=4, neurons=8, classes=2),
        "learning rate said to be twice what it is, 4 even portraits": Federation(
            even_portraits, records=4, said=(2.0, 1.0)
        ),
    }
    return {name: functools.partial(audited, federation) for name, federation in made.items()}
