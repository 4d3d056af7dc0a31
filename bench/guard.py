"""What the guard adds to a client's round, and honest rounds that it refuses.

python -m bench.guard --rounds 1000
"""

import argparse
import copy
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from bench.measure import interleaved
from bench.peers.networks import ImageNetwork
from fedleak_guard import Guard, Message, RefusedError

POLICY = """\
format: 1
evidence: {folder}/{name}
tensors: [{{name: "*", dtype: float32}}]
update: {{max_norm: 1000, min_examples: 10, min_changed: 0.01}}
metrics: {{names: [loss]}}
budget: {{site_rounds: 1000000}}
"""


def trained(network: ImageNetwork, images: torch.Tensor, labels: torch.Tensor, batch: int) -> ImageNetwork:
    """A copy of the network after one epoch of SGD."""
    own = copy.deepcopy(network)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.01)
    for chosen in torch.randperm(len(labels)).split(batch):  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        functional.cross_entropy(own(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return own


def message(network: ImageNetwork, own: ImageNetwork, number: int, **more: Any) -> Message:
    """The message of a client of this round."""
    received = dict(network.state_dict())
    sent = dict(own.state_dict())
    given = {"sent": sent, "holds": "models", "received": received, "metrics": {"loss": 0.5}, "examples": 600, **more}
    return Message(job="bench", round=number, **given)


def main() -> None:
    """Prints seconds of each piece, shares of the training, and the refusals of honest rounds by reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = ImageNetwork(1, 28, 10)
    images, labels = torch.rand(600, 1, 28, 28), torch.randint(10, (600,))
    own = trained(network, images[:50], labels[:50], 10)
    with tempfile.TemporaryDirectory() as folder:
        guards = {}
        for name in ("alone", "with fedleak", "rounds"):
            path = Path(folder) / f"{name}.yaml"
            path.write_text(POLICY.format(folder=folder, name=name))
            guards[name] = Guard(path)
        whole = {"records": images, "labels": labels}
        pieces = {
            "training, 600 images": lambda: trained(network, images, labels, 10),
            "training, 50 images": lambda: trained(network, images[:50], labels[:50], 10),
            "all checks": lambda: guards["with fedleak"].release(message(network, own, 0, **whole)),
            "own numbers alone": lambda: guards["alone"].release(
                message(network, own, 0, received=None, holds="deltas")
            ),
        }
        seconds = interleaved(pieces, options.repeats)
        for name, value in seconds.items():
            shares = [value / seconds[other] for other in seconds if other.startswith("training")]
            print(f"{name:24}{value:9.4f} s{shares[0]:9.2%}{shares[1]:9.2%} of each training")
        print(_honest(guards["rounds"], network, images, labels, options.rounds))


def _honest(guard: Guard, network: ImageNetwork, images: torch.Tensor, labels: torch.Tensor, rounds: int) -> str:
    """Refusals of rounds of clients with 16 images each, at models that get better."""
    refused: Counter[str] = Counter()
    start = time.perf_counter()
    for number in range(rounds):
        chosen = torch.randint(len(labels), (16,))
        own = trained(network, images[chosen], labels[chosen], 16)
        try:
            guard.release(message(network, own, number, examples=16))
        except RefusedError as error:
            refused[error.reasons[0][:60]] += 1
        if number % 10 == 9:
            network = own
    reasons = "; ".join(f"{count} {reason}" for reason, count in refused.items()) or "none"
    return f"{rounds} honest rounds in {time.perf_counter() - start:.0f} s, refused: {reasons}"


if __name__ == "__main__":
    main()
