"""fedjax: its for_each_client compiled by jax.jit, and federated averaging as its own fed_avg has it."""

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
_KERNEL = ("NCHW", "OIHW", "NCHW")


def image_loss(parameters: Parameters, batch: Parameters) -> Any:
    """Mean cross-entropy of the job's convolutional network."""
    hidden = batch["x"]
    for name in ("body.0", "body.2"):
        hidden = lax.conv_general_dilated(
            hidden, parameters[f"{name}.weight"], (1, 1), "VALID", dimension_numbers=_KERNEL
        )
        hidden = jax.nn.relu(hidden + parameters[f"{name}.bias"][None, :, None, None])
    hidden = lax.reduce_window(hidden, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    hidden = hidden.reshape(len(hidden), -1)
    hidden = jax.nn.relu(hidden @ parameters["body.6.weight"].T + parameters["body.6.bias"])
    logits = hidden @ parameters["output.weight"].T + parameters["output.bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()


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
    """Number, mini-batches and own parameters of every client of a round."""
    for place, client in enumerate(job.cohorts[number].tolist()):
        images = job.plan.kind == "images"
        x, y = job.images(number, place) if images else job.pairs(client)
        data = fedjax.ClientDataset({"x": x, "y": y.astype(np.int32) if images else y})
        size = job.plan.batch_size or len(y)
        batches = data.shuffle_repeat_batch(batch_size=size, num_epochs=job.plan.epochs, skip_shuffle=True)
        yield client, batches, {} if images else {"user": users[client]}


@jax.jit
def add(total: Parameters, delta: Parameters, weight: float) -> Parameters:
    """A weighted sum, which fedjax's own tree_util gives only with a JAX that is years old."""
    return jax.tree_util.tree_map(lambda one, other: one + weight * other, total, delta)  # type: ignore[no-any-return]


def main() -> None:
    """Runs the rounds it is asked for."""
    job = Job(job_folder())
    model: Parameters = {name: jnp.asarray(value) for name, value in job.weights.items()}

    def weights() -> Weights:
        return {name: np.asarray(value) for name, value in model.items()}

    users = job.arrays["users"].copy() if job.plan.kind == "interactions" else None
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
