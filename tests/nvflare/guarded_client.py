"""Clients of the guarded job: they clip their change, add noise, and report a loss, unless they have a fault.

The fault is ``dp-off`` (no noise), ``per-person`` (a loss for each example), ``text`` (a text in the meta data),
``tensor`` (one that the model has not), ``raises`` or ``none`` and others for none.
"""

import argparse

import numpy as np
import nvflare.client as flare
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType


def main() -> None:
    """Trains in every round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault")
    fault = parser.parse_args().fault
    flare.init()
    draws = np.random.default_rng(sum(flare.get_site_name().encode()))
    while flare.is_running():
        given = flare.receive()
        assert given.params is not None
        change = {name: draws.normal(size=np.shape(value)) for name, value in given.params.items()}
        norm = np.sqrt(sum(float(np.square(value).sum()) for value in change.values()))
        noise = 0.0 if fault == "dp-off" else 0.5
        params = {
            name: (np.asarray(given.params[name]) + value / norm + noise * draws.normal(size=value.shape)).astype("f")
            for name, value in change.items()
        }
        if fault == "tensor":
            params["extra"] = np.ones(3, np.float32)
        if fault == "raises":
            raise RuntimeError("the client failed")
        losses = draws.random(20)
        metrics = {"loss": losses.tolist() if fault == "per-person" else float(losses.mean())}
        meta = {"num_examples": 20, **({"note": "patient 7"} if fault == "text" else {})}
        flare.send(FLModel(params=params, params_type=ParamsType.FULL, metrics=metrics, meta=meta))


if __name__ == "__main__":
    main()
