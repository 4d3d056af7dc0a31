"""fedjax: its for_each_client compiled by jax.jit, and federated averaging as in its fed_avg."""

from collections.abc import Callable, Iterator
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from bench.peers.protocol import Host, Job, Weights, job_folder

Parameters = dict[str, Any]
_LAYOUT = ("NHWC", "HWIO", "NHWC")
"""Channels last, as in Haiku; with channels first XLA is many times slower on a CPU."""


def image_loss(parameters: Parameters, batch: Parameters) -> Any:
    """Mean cross-entropy of the job's convolutional network."""
    hidden = batch["x"]
    for name in ("body.0", "body.2"):
        hidden = lax.conv_general_dilated(
            hidden, parameters[f"{name}.weight"], (1, 1), "VALID", dimension_numbers=_LAYOUT
        )
        hidden = jax.nn.relu(hidden + parameters[f"{name}.bias"])
    hidden = lax.reduce_window(hidden, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    hidden = jnp.einsum("nhwc,hwco->no", hidden, parameters["body.6.weight"]) + parameters["body.6.bias"]
    logits = jax.nn.relu(hidden) @ parameters["output.weight"].T + parameters["output.bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()


def to_channels_last(weights: Weights) -> Weights:
    """Converts torch's layouts to those of `image_loss`."""
    turned = dict(weights)
    for name in ("body.0.weight", "body.2.weight"):
        turned[name] = weights[name].transpose(2, 3, 1, 0)
    flat = weights["body.6.weight"]
    size = int((flat.shape[1] // 64) ** 0.5)
    turned["body.6.weight"] = flat.reshape(-1, 64, size, size).transpose(2, 3, 1, 0)
    return turned


def from_channels_last(weights: Weights) -> Weights:
    """Converts the layouts of `image_loss` to torch's."""
    turned = dict(weights)
    for name in ("body.0.weight", "body.2.weight", "body.6.weight"):
        turned[name] = weights[name].transpose(3, 2, 0, 1)
    turned["body.6.weight"] = turned["body.6.weight"].reshape(len(turned["body.6.weight"]), -1)
    return turned


def interaction_loss(parameters: Parameters, batch: Parameters) -> Any:
    """Mean binary cross-entropy of the job's collaborative-filtering network."""
    items = parameters["item_embedding.weight"][batch["x"]]
    users = jnp.broadcast_to(parameters["user"], items.shape)
    hidden = jnp.concatenate([users, items], axis=1)
    for name in ("mlp.0", "mlp.2"):
        hidden = jax.nn.relu(hidden @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"])
    logits = (hidden @ parameters["mlp.4.weight"].T + parameters["mlp.4.bias"])[:, 0]
    return optax.sigmoid_binary_cross_entropy(logits, batch["y"]).mean()


def training(job: Job) -> Callable[..., Any]:
    """Local training of every client of a round."""
    loss = image_loss if job.plan.kind == "images" else interaction_loss
    made = fedjax.optimizers.adam if job.plan.optimizer == "adam" else fedjax.optimizers.sgd
    optimizer = made(job.plan.learning_rate)
    gradient = jax.grad(loss)

    def start(shared: Parameters, own: Parameters) -> Parameters:
        parameters = {**shared, **own}
        return {"parameters": parameters, "optimizer": optimizer.init(parameters)}

    def step(state: Parameters, batch: Parameters) -> Parameters:
        gradients = gradient(state["parameters"], batch)
        after, parameters = optimizer.apply(gradients, state["optimizer"], state["parameters"])
        return {"parameters": parameters, "optimizer": after}

    def end(shared: Parameters, state: Parameters) -> Parameters:
        trained = state["parameters"]
        delta = {name: trained[name] - value for name, value in shared.items()}
        return {"delta": delta, "own": {n: v for n, v in trained.items() if n not in shared}}

    trained: Callable[..., Any] = fedjax.for_each_client(start, step, end)
    return trained


def clients_of(job: Job, number: int, users: Any) -> Iterator[tuple[int, Any, Parameters]]:
    """Number, mini-batches and private parameters of every client of a round."""
    for place, client in enumerate(job.cohorts[number].tolist()):
        images = job.plan.kind == "images"
        x, y = job.images(number, place) if images else job.pairs(client)
        x = x.transpose(0, 2, 3, 1) if images else x
        data = fedjax.ClientDataset({"x": x, "y": y.astype(np.int32) if images else y})
        size = job.plan.batch_size or len(y)
        batches = data.shuffle_repeat_batch(batch_size=size, num_epochs=job.plan.epochs, skip_shuffle=True)
        yield client, batches, {} if images else {"user": users[client]}


@jax.jit
def add(total: Parameters, delta: Parameters, weight: float) -> Parameters:
    """A weighted sum; fedjax's own tree_util needs an old version of JAX."""
    return jax.tree_util.tree_map(lambda one, other: one + weight * other, total, delta)  # type: ignore[no-any-return]


def main() -> None:
    """Runs rounds on request."""
    job = Job(job_folder())
    images = job.plan.kind == "images"
    initial = to_channels_last(job.weights) if images else job.weights
    model: Parameters = {name: jnp.asarray(value) for name, value in initial.items()}

    def weights() -> Weights:
        found = {name: np.asarray(value) for name, value in model.items()}
        return from_channels_last(found) if images else found

    users = None if images else job.arrays["users"].copy()
    train, host, number = training(job), Host(weights), 0
    while host.wait():
        total = {name: jnp.zeros_like(value) for name, value in model.items()}
        weight = 0.0
        for client, output in train(model, clients_of(job, number % len(job.cohorts), users)):
            count = float(job.counts[client])
            total = add(total, output["delta"], count)
            weight += count
            if users is not None:
                users[client] = output["own"]["user"]
        model = add(model, total, 1 / weight)
        jax.block_until_ready(model)
        number += 1
        host.done()


if __name__ == "__main__":
    main()
