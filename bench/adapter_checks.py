"""Checks of a received adapter against a server that sends a memory adapter, and against honest rounds.

python -m bench.adapter_checks --root DATA

Honest federated training of the adapters of a small GPT-2 on bloggers' sentences; after rounds 0 and 10, each device
has the global adapter, the one before, and its own last update. The checks are those of `fedleak.defenses.model_checks`
that need no images and no ReLU. Prints, by check, the share of devices whose check exceeds the threshold of split
conformal prediction on honest devices at a false-positive rate of .01. Checks that read the adapter alone have one
honest value in each of the two rounds.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedleak.client.adapters import AdapterOptions
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.pretrained_examples import TOKENS
from fedleak.core.seeding import generator_for
from fedleak.datamodules.devices.blog import Blog
from fedleak.datamodules.devices.tokenization import TokenizationOptions
from fedleak.datamodules.devices.user_filter import UserFilter
from fedleak.defenses.model_checks.allow_list import AllowList, model_hash
from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel
from fedleak.defenses.model_checks.commitment import Commitment
from fedleak.defenses.model_checks.proportional_rows import ProportionalRows
from fedleak.defenses.model_checks.server_step import ServerStep
from fedleak.defenses.model_checks.weight_law import WeightLaw
from fedleak.server.memory_adapter import MemoryAdapter
from fedleak_recorder.conformal import conformal_thresholds

Model = dict[str, Tensor]
CHECKS: tuple[ModelCheck, ...] = (ProportionalRows(), WeightLaw(), ServerStep(), AllowList(), Commitment())
ROUNDS, CLIENTS, SUM, WORDS, RATE = (0, 10), 100, 10, 8, 0.01
STRENGTHS = (0.05, 0.25, 1.0)


def clients_algorithm(seed: int = 0) -> PretrainedAlgorithm:
    config = Path("configs/networks/gpt2_256.json").read_text(encoding="utf-8")
    adapter = AdapterOptions(rank=128, targets=("c_fc",))
    return PretrainedAlgorithm(config=config, adapter=adapter, base_seed=seed, local=LocalTraining(learning_rate=0.1))


def values(own: PretrainedAlgorithm, model: Model, before: Model, honest: Model, number: int, cohort: Cohort) -> Tensor:
    """``(C, K)`` statistics of the devices of a cohort that are sent a model in a round."""
    rows = []
    for client in range(len(cohort)):
        last = None if number == 0 else own.train(before, cohort.select(torch.tensor([client])), seed=number).deltas
        received = ReceivedModel(
            network=own.network,
            model=model,
            reference=before,
            inputs=torch.zeros(0),
            labels=torch.zeros(0),
            is_first=number == 0,
            own_delta=None if last is None else {name: value[0] for name, value in last.items()},
            allowed=frozenset({model_hash(honest)}) if number == 0 else None,
            commitments=[model_hash(model)] * SUM,
        )
        rows.append([check.statistic(received) for check in CHECKS])
    return torch.tensor(rows, dtype=torch.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    options = parser.parse_args()
    text = TokenizationOptions(words=WORDS, fewest_words=WORDS)
    data = Blog(root=options.root, users=UserFilter(fewest=100, most_users=50), text=text, device_examples=16)
    data.setup("fit")
    own = clients_algorithm()
    model, before = own.first_model(), clients_algorithm(1).first_model()
    known = data.raw_examples(torch.cat(data.client_examples()))[0][:2000]
    texts = data.raw_examples(torch.cat(data.client_examples()))[0][-16 * options.clients :]
    cohort = Cohort(
        0,
        torch.arange(len(texts) // 16),
        {TOKENS: texts[: len(texts) // 16 * 16].reshape(-1, 16, WORDS)},
        torch.ones(len(texts) // 16, 16, dtype=torch.bool),
    )
    honest, manipulated = [], dict[float, list[Tensor]]()
    for number in range(max(ROUNDS) + 1):
        if number in ROUNDS:
            honest.append(values(own, model, before, model, number, cohort))
            inputs = own.adapted_inputs(model, known, layers=1)[0].vectors[:, :-1]
            few = cohort.select(torch.arange(min(20, len(cohort))))
            for strength in STRENGTHS:
                server = MemoryAdapter(records=160, strength=strength)
                sent = server.sent(model, inputs, few.clients, generator=generator_for(number, "bench")).first
                manipulated.setdefault(strength, []).append(values(own, sent, before, model, number, few))
        chosen = torch.randperm(len(cohort), generator=generator_for(0, "bench clients", number))[:SUM]
        deltas = own.train(model, cohort.select(chosen), seed=number).deltas
        before, model = model, {name: value + deltas[name].mean(0) for name, value in model.items()}
    every = torch.cat(honest)
    half = torch.randperm(len(every), generator=generator_for(0, "halves")).remainder(2) == 0
    bounds = torch.from_numpy(np.concatenate([conformal_thresholds(column, RATE).values for column in every[half].T]))
    print(
        f"{len(every)} honest", {c.__class__.__name__: round(float(b), 4) for c, b in zip(CHECKS, bounds, strict=True)}
    )
    rates = {"honest, both rounds": every[~half]}
    for strength, parts in manipulated.items():
        rates |= {f"strength {strength:g}, round {n}": part for n, part in zip(ROUNDS, parts, strict=True)}
    for label, part in rates.items():
        over = (part > bounds).double().mean(0)
        print(label, {check.name: round(float(rate), 3) for check, rate in zip(CHECKS, over, strict=True)})


if __name__ == "__main__":
    main()
