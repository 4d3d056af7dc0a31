"""Clients that fine-tune adapters on half of a pool of texts."""

import functools

import torch

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES
from tests.membership_toys import Toy, as_history
from tests.transformer_toys import algorithm, moved_model, texts

CLIENTS, EACH, RANK = 4, 8, 16


EPOCH = LocalTraining(learning_rate=0.5, batch_size=4)


@functools.cache
def toy(local: LocalTraining, sizes: bool = False) -> Toy:
    """Half of the pool is held by clients, the other half by nobody; with `sizes`, texts differ in length."""
    own, generator = algorithm(local, rank=RANK), torch.Generator().manual_seed(3)
    pool = texts(1, 2 * CLIENTS * EACH)[0]
    if sizes:
        lengths = torch.randint(3, pool.shape[1] + 1, (len(pool), 1), generator=generator)
        pool = pool * (torch.arange(pool.shape[1]) < lengths)
    held = torch.randperm(len(pool), generator=generator)[: CLIENTS * EACH].reshape(CLIENTS, EACH)
    member = torch.zeros(CLIENTS, len(pool), dtype=torch.bool)
    member[torch.arange(CLIENTS)[:, None], held] = True
    classes, model = torch.zeros(len(pool), dtype=torch.int64), moved_model(rank=RANK)
    deltas = own.simulate_examples(model, pool, classes, held, generator=generator)
    view = as_history(own, model, deltas, {CANDIDATES: pool, CANDIDATE_LABELS: classes}, EACH)
    return view, {"member": member, "clients": torch.arange(CLIENTS)}
