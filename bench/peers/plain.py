"""The plain loop of a tutorial: one client after another, each on a copy of the model.

With ``float64`` after the job's folder it computes in double precision, for others to be compared with.
"""

import copy
import sys

import torch

from bench.peers.networks import (
    InteractionNetwork,
    Network,
    batches_of,
    network_of,
    optimizer_of,
    public_of,
    weights_of,
)
from bench.peers.protocol import Host, Job, job_folder


def main() -> None:
    """Runs rounds on request."""
    job = Job(job_folder())
    double = sys.argv[2:] == ["float64"]
    network = network_of(job).to(torch.float64 if double else torch.float32)
    host = Host(lambda: weights_of(network))
    users = None
    if job.plan.kind == "interactions":
        users = torch.from_numpy(job.arrays["users"].copy()).to(next(network.parameters()))
    number = 0
    while host.wait():
        _round(job, network, users, number)
        number += 1
        host.done()


def _round(job: Job, network: Network, users: torch.Tensor | None, number: int) -> None:
    public = dict(public_of(network))
    total = {name: torch.zeros_like(value) for name, value in public.items()}
    weight = 0
    for place, client in enumerate(job.cohorts[number].tolist()):
        model = copy.deepcopy(network).requires_grad_()
        if users is not None and isinstance(model, InteractionNetwork):
            model.user.data.copy_(users[client])
        optimizer = optimizer_of(job, model.parameters())
        for batch in batches_of(job, number, place):
            optimizer.zero_grad()
            kind = next(model.parameters()).dtype
            examples = (value.to(kind) if value.is_floating_point() else value for value in batch)
            model.loss(*examples).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        count = int(job.counts[client])
        with torch.no_grad():
            for name, value in public_of(model):
                total[name].add_(value - public[name], alpha=count)
        weight += count
        if users is not None and isinstance(model, InteractionNetwork):
            users[client] = model.user.detach()
    with torch.no_grad():
        for name, value in public.items():
            value.add_(total[name], alpha=1 / weight)


if __name__ == "__main__":
    main()
