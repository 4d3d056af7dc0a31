"""Images certified by `linear-inversion`: few and even grey levels, coarse updates, and learners not declared."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from bench.certificates import Counts
from bench.certificates._clients import (
    Loss,
    Sent,
    Update,
    Updates,
    clipped,
    counted,
    masked,
    network_of,
    noisy,
    quantised,
    quantised_between,
    sparse,
    squared_error,
    stored_as,
    summed,
    train_together,
    trained,
    view_of,
)
from fedleak.attacks.reconstruction import LinearInversion
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.core.seeding import generator_for

CLIENTS = 12
SIDE = 12
"""Pixels of a side of a drawn image; scikit-learn's digits have 8."""

Pictures = tuple[Tensor, Tensor]
"""Images ``(M, D)`` as whole levels from 0 to 255, float64, and their classes ``(M,)``."""


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
        pooled: clients whose updates are added without the server's knowledge.
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


def audited(federation: Federation, seed: int) -> Counts:
    """What the attack certifies of one round of a federation."""
    levels, classes = federation.pictures()
    draws = generator_for(seed, "certificates")
    holdings = drawn_holdings(federation, classes, draws)
    dtype = torch.float64 if federation.double else torch.float32
    images = (levels / 255).to(dtype)

    torch.manual_seed(seed)
    model, names = network_of(levels.shape[1], neurons=federation.neurons, layers=1, classes=federation.classes)
    model = model.to(dtype)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(federation.output_scale)

    def update_of(numbers: Tensor) -> Update:
        batches = [(images[numbers], classes[numbers])] * federation.epochs
        return trained(model, batches, loss=federation.loss, rate=federation.rate)

    train_together(model, update_of, holdings, rounds=federation.warm)
    updates: Updates = [update_of(numbers) for numbers in holdings]
    if federation.sent is not None:
        updates = federation.sent(updates, draws)
    if federation.pooled > 1:
        updates, holdings = summed(updates, holdings, clients=federation.pooled)

    rate_factor, count_factor = federation.said
    learner = ImageClassifierAlgorithm(
        network=ClassifierOptions(name="mlp", hidden=federation.neurons),
        image_shape=(1, 1, levels.shape[1]),
        num_classes=federation.classes,
        local=LocalTraining(optimizer="sgd", learning_rate=federation.rate * rate_factor, epochs=federation.epochs),
    )
    view = view_of(
        model,
        updates,
        names,
        count=round(federation.records * count_factor),
        learner=learner if federation.known else None,
        auxiliary={} if federation.known else {"images": images[-8:].reshape(8, 1, 1, -1)},
    )
    return counted(LinearInversion(), view, holdings, images, _keys)


def drawn_holdings(federation: Federation, classes: Tensor, draws: torch.Generator) -> list[Tensor]:
    """Numbers of the images of each client, which has few classes, so that images of one class meet at a neuron."""
    usable = (classes < federation.classes).nonzero().flatten()
    holdings = list[Tensor]()
    for _ in range(CLIENTS):
        preference = torch.rand(federation.classes, generator=draws) ** 6
        weights = preference[classes[usable]] + 1e-6
        drawn = usable[torch.multinomial(weights.double(), federation.records, generator=draws)]
        if federation.repeated:
            half = federation.records // 2
            drawn = torch.cat([drawn[:half], drawn[:half], drawn[2 * half :]])
        holdings.append(drawn)
    return holdings


def _keys(images: Tensor) -> list[bytes]:
    """Grey levels of images."""
    return [row.numpy().tobytes() for row in (images * 255).round().to(torch.uint8)]


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
