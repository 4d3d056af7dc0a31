"""Clients of `tests.nvflare.watched`: they clip and noise their updates, and from round FAULT on add no noise."""

import argparse

import numpy as np
import nvflare.client as flare
from nvflare.apis.dxo import MetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType


def main() -> None:
    """Trains in every round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", type=int)
    fault = parser.parse_args().fault
    flare.init()
    draws = np.random.default_rng()
    while flare.is_running():
        given = flare.receive()
        before = {name: np.asarray(value) for name, value in given.params.items()}
        change = {name: draws.normal(size=value.shape) for name, value in before.items()}
        norm = np.sqrt(sum(float(np.square(value).sum()) for value in change.values()))
        noise = 0.0 if given.current_round >= fault else 0.5
        sent = {
            name: (before[name] + 0.8 * value / norm + noise * draws.normal(size=value.shape)).astype("f")
            for name, value in change.items()
        }
        flare.send(FLModel(params=sent, params_type=ParamsType.FULL, meta={MetaKey.NUM_STEPS_CURRENT_ROUND: 20}))


if __name__ == "__main__":
    main()
