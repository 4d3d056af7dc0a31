"""False findings of the lint on honest updates of ten networks, its planted leaks, and what it costs.

python -m bench.lint --data DATA --updates 1000

Each network takes SGD or Adam steps on its own draw of MNIST's images, of random words or of random ratings, and sends
what clients of federations send: changes or models, whole, sparse, rounded, quantised, as signs, in half
precision, or as adapters. DATA has the folder MNIST/raw; without it, images are those of scikit-learn's digits.
"""

import argparse
import gzip
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.linting import linted
from tests.lint_toys import FIXTURES

WORDS = 200
"""Vocabulary of the networks of texts."""
SIDE = 28
CLASSES = 10
ROWS, COLUMNS = 100, 80
"""Users and items of the recommender."""


def images_of(data: Path | None) -> tuple[torch.Tensor, torch.Tensor]:
    """``(N, 1, 28, 28)`` images in [0, 1] and ``(N,)`` labels: MNIST's, or enlarged digits of scikit-learn."""
    if data is not None:
        folder = data / "MNIST" / "raw"
        pixels = np.frombuffer(_content(folder / "train-images-idx3-ubyte"), np.uint8, offset=16)
        labels = np.frombuffer(_content(folder / "train-labels-idx1-ubyte"), np.uint8, offset=8)
        images = torch.from_numpy(pixels.reshape(-1, 1, SIDE, SIDE)[:20_000].astype("f") / 255)
        return images, torch.from_numpy(labels[:20_000].astype(np.int64))
    from sklearn.datasets import load_digits

    digits, classes = load_digits(return_X_y=True)
    small = torch.from_numpy(digits.reshape(-1, 1, 8, 8).astype("f") / 16)
    return functional.interpolate(small, SIDE), torch.from_numpy(classes.astype(np.int64))


def _content(path: Path) -> bytes:
    """Content of a file, or of its compressed copy."""
    if path.exists():
        return path.read_bytes()
    return gzip.decompress(path.with_suffix(".gz").read_bytes())


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def convolutional() -> nn.Module:
    """Convolutions with batch norm, whose counters and statistics are sent too."""
    layers = [
        nn.Conv2d(1, 8, 3, 2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))


def logistic() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, CLASSES))


class Residual(nn.Module):
    """A residual network with group norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 12, 5, 3)
        self.norm = nn.GroupNorm(3, 12)
        self.second = nn.Conv2d(12, 12, 3, padding=1)
        self.last = nn.Linear(12, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(images)))
        hidden = hidden + torch.relu(self.second(hidden))
        logits: torch.Tensor = self.last(hidden.mean((2, 3)))
        return logits


class Patches(nn.Module):
    """A vision transformer with position embeddings and an index of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("position_ids", torch.arange(16))
        self.patch = nn.Conv2d(1, 16, 7, 7)
        self.position = nn.Parameter(0.02 * torch.randn(1, 16, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patch(images).flatten(2).transpose(1, 2) + self.position
        logits: torch.Tensor = self.head(self.block(tokens).mean(1))
        return logits


class Autoencoder(nn.Module):
    """A variational autoencoder, of which the reconstruction of labels takes the place of that of images."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(SIDE * SIDE, 32)
        self.mean = nn.Linear(32, 8)
        self.log_variance = nn.Linear(32, 8)
        self.decoder = nn.Linear(8, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.encoder(images.flatten(1)))
        code = self.mean(hidden) + torch.exp(self.log_variance(hidden) / 2) * torch.randn(len(images), 8)
        logits: torch.Tensor = self.decoder(code)
        return logits


class Recurrent(nn.Module):
    """An LSTM over words, of whose embeddings a client touches few rows."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.lstm = nn.LSTM(16, 24, batch_first=True)
        self.output = nn.Linear(24, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.output(self.lstm(self.embedding(words))[0][:, -1])
        return logits


class Decoder(nn.Module):
    """A decoder with a causal mask and rotation frequencies as buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(1, 1, 12, 12)))
        self.register_buffer("inv_freq", 1 / 10_000 ** (torch.arange(0, 64, 2) / 64))
        self.embedding = nn.Embedding(WORDS, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        hidden = self.block(self.embedding(words), src_mask=mask)[:, -1]
        logits: torch.Tensor = hidden @ self.embedding.weight.T
        return logits


class Adapter(nn.Module):
    """A frozen linear layer with low-rank adapters, which alone are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.lora_A = nn.Parameter(torch.randn(8, SIDE * SIDE) / SIDE)
        self.lora_B = nn.Parameter(torch.zeros(32, 8))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(images.flatten(1) @ self.lora_A.T @ self.lora_B.T)
        return logits


class Recommender(nn.Module):
    """Vectors of items, of which a client touches those that it rated."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(COLUMNS, 12)
        self.users = nn.Embedding(ROWS, 12)
        self.output = nn.Linear(12, 2)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.output(self.items(pairs[:, 0]) * self.users(pairs[:, 1]))
        return logits


OF_IMAGES: tuple[Callable[[], nn.Module], ...] = (mlp, convolutional, logistic, Residual, Patches, Autoencoder, Adapter)
OF_WORDS: tuple[Callable[[], nn.Module], ...] = (Recurrent, Decoder)
NETWORKS = (*OF_IMAGES, *OF_WORDS, Recommender)


def honest_update(network: Callable[[], nn.Module], images: torch.Tensor, labels: torch.Tensor, seed: int) -> Any:
    """Parameters before and after a client's steps, and its number of examples and mean loss."""
    torch.manual_seed(seed)
    draws = np.random.default_rng(seed)
    examples = int(draws.integers(8, 400))
    if network in OF_IMAGES:
        chosen = torch.randint(len(images), (examples,))
        inputs, targets = images[chosen], labels[chosen]
    elif network in OF_WORDS:
        # Few words are frequent, as in texts.
        words = (WORDS * torch.rand(examples, 13) ** 3).long()
        inputs, targets = words[:, :-1], words[:, -1]
    else:
        inputs = torch.stack([torch.randint(COLUMNS, (examples,)), torch.full((examples,), seed % ROWS)], 1)
        targets = torch.randint(2, (examples,))
    local = network()
    before = {name: value.detach().clone() for name, value in local.state_dict().items()}
    optimizer: torch.optim.Optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
    if seed % 2:
        optimizer = torch.optim.Adam(local.parameters(), lr=0.001)
    losses = []
    for batch in torch.arange(examples).split(32)[: 1 + seed % 4]:  # type: ignore[no-untyped-call]
        # Batch norm needs two examples.
        if len(batch) < 2:
            continue
        optimizer.zero_grad()
        loss = functional.cross_entropy(local(inputs[batch]), targets[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    after = {name: value.detach() for name, value in local.state_dict().items()}
    return before, after, examples, losses


def changes(before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """Changes of the tensors, in their type of numbers."""
    return {name: (after[name] - value).numpy() for name, value in before.items()}


Sender = Callable[[dict[str, Array], np.random.Generator], dict[str, Any]]


def _floats(update: dict[str, Array], change: Callable[[Array], Any]) -> dict[str, Any]:
    """An update with its floating-point arrays changed."""
    return {name: change(value) if value.dtype.kind == "f" else value for name, value in update.items()}


def top_tenth(update: dict[str, Array], _: np.random.Generator) -> dict[str, Any]:
    """All but the largest tenth of each array are 0."""
    return _floats(update, lambda value: np.where(np.abs(value) >= np.quantile(np.abs(value), 0.9), value, 0))


def places_and_values(update: dict[str, Array], _: np.random.Generator) -> dict[str, Any]:
    """Places and values of the largest tenth of each array."""
    sent: dict[str, Any] = {}
    for name, value in update.items():
        flat = value.reshape(-1)
        places = np.sort(np.argsort(-np.abs(flat))[: max(1, flat.size // 10)])
        sent[name] = {"indices": places, "values": flat[places]}
    return sent


def eight_bits(update: dict[str, Array], _: np.random.Generator) -> dict[str, Any]:
    """Whole numbers of 8 bits with a scale for each array."""
    sent: dict[str, Any] = {}
    for name, value in update.items():
        if value.dtype.kind != "f":
            continue
        scale = float(np.abs(value).max()) / 127 or 1.0
        sent[f"{name}.int8"] = np.round(value / scale).astype(np.int8)
        sent[f"{name}.scale"] = scale
    return sent


def zero_point(update: dict[str, Array], _: np.random.Generator) -> dict[str, Any]:
    """Whole numbers from 0 to 255 with a scale and the number that 0 has."""
    sent: dict[str, Any] = {}
    for name, value in update.items():
        if value.dtype.kind != "f":
            continue
        scale = float(value.max() - value.min()) / 255 or 1.0
        sent[f"{name}.uint8"] = np.round((value - value.min()) / scale).astype(np.uint8)
        sent[f"{name}.scale"] = scale
        sent[f"{name}.zero_point"] = float(value.min())
    return sent


def levels(update: dict[str, Array], _: np.random.Generator) -> dict[str, Any]:
    """Numbers on 256 levels between the smallest and the largest."""

    def on_levels(value: Array) -> Array:
        scale = float(value.max() - value.min()) / 255 or 1.0
        on_level: Array = np.round((value - value.min()) / scale) * scale + value.min()
        return on_level.astype(np.float32)

    return _floats(update, on_levels)


def signs(update: dict[str, Array], _: np.random.Generator) -> dict[str, Any]:
    return _floats(update, np.sign)


def ternary(update: dict[str, Array], draws: np.random.Generator) -> dict[str, Any]:
    """-s, 0 and s by chance, as in TernGrad."""

    def drawn(value: Array) -> Array:
        largest = float(np.abs(value).max())
        chances = np.abs(value) / (largest or 1.0)
        return (np.sign(value) * largest * (draws.random(value.shape) < chances)).astype("f")

    return _floats(update, drawn)


def half(update: dict[str, Array], _: np.random.Generator) -> dict[str, Any]:
    return _floats(update, lambda value: value.astype(np.float16))


def bfloat16(update: dict[str, Array], _: np.random.Generator) -> dict[str, Any]:
    return _floats(update, lambda value: torch.from_numpy(value).bfloat16().float().numpy())


def whole(update: dict[str, Array], _: np.random.Generator) -> dict[str, Any]:
    return dict(update)


SENDERS: tuple[Sender, ...] = (
    *(whole, top_tenth, places_and_values, eight_bits, zero_point),
    *(levels, signs, ternary, half, bfloat16),
)


def false_findings(updates: int, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Prints how many honest updates have findings, by network and by form."""
    by_network: Counter[str] = Counter()
    by_form: Counter[str] = Counter()
    wrong = 0
    seconds = 0.0
    for number in range(updates):
        network = NETWORKS[number % len(NETWORKS)]
        send = SENDERS[number // len(NETWORKS) % len(SENDERS)]
        before, after, examples, losses = honest_update(network, images, labels, number)
        # Models in every second run over all forms, changes in the others.
        holds_models = number // (len(NETWORKS) * len(SENDERS)) % 2 == 1
        update = {name: value.numpy() for name, value in after.items()} if holds_models else changes(before, after)
        arrays = send(update, np.random.default_rng(number))
        metrics = {"num-examples": examples, "train_loss": float(np.mean(losses)), "losses": losses, "epochs": 1}
        message = AnyMessage.of({"arrays": arrays, "metrics": metrics, "config": {"lr": 0.1, "optimizer": "sgd"}})
        start = time.perf_counter()
        findings = linted(message)
        seconds += time.perf_counter() - start
        if findings:
            wrong += 1
            by_network[network.__name__] += 1
            by_form[send.__name__] += 1
            print(
                number, network.__name__, send.__name__, examples, "; ".join(f"{f.kind} {f.sentence}" for f in findings)
            )
    print(f"honest updates with findings: {wrong} of {updates}; {1000 * seconds / updates:.2f} ms each")
    print(f"by network: {dict(by_network)}; by form: {dict(by_form)}")


def planted_leaks(seeds: int) -> None:
    """Prints how many planted leaks of the fixtures are named, and how many honest twins have findings."""
    named = 0
    planted = 0
    twins = 0
    wrong_twins = 0
    for fixture in FIXTURES:
        for seed in range(seeds):
            kinds = {finding.kind for finding in linted(AnyMessage.of(fixture.leaking(seed)))}
            planted += 1
            named += fixture.kinds <= kinds
            if not fixture.kinds <= kinds:
                print(f"not named: {fixture.name}, seed {seed}: {sorted(fixture.kinds - kinds)}")
            findings = linted(AnyMessage.of(fixture.honest(seed)))
            twins += 1
            wrong_twins += bool(findings)
            if findings:
                print(f"honest twin of {fixture.name}, seed {seed}: {findings[0].kind} {findings[0].sentence}")
    print(f"planted leaks named: {named} of {planted}; honest twins with findings: {wrong_twins} of {twins}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with MNIST/raw")
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    planted_leaks(options.seeds)
    false_findings(options.updates, *images_of(options.data))


if __name__ == "__main__":
    main()
