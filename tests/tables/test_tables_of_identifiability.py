"""Tables on PAC identifiability, small and on generated users: the steps after the attacks, and what they refuse."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from fedleak.callbacks.steps.identifiability import least_share
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.errors import InputError
from fedleak.core.gaussian_budget import composed_epsilon
from fedleak.modules.learners.recommender import held_out_hits
from fedleak.tables.after import STEPS, after_steps
from tests.places import CONFIGS
from tests.probing_toys import clients, learner
from tests.tables.tables import Result, read, reproduce

SMALL: dict[str, Any] = {
    "train": str(CONFIGS / "train" / "pac_probing_movielens.yaml"),
    "metrics": ["success", "error", "label-error", "bound", "hr@10", "cosine-after", "preference-rate"],
    "set": {
        "data.clients_per_round": 30,
        "data.likes": 0.3,
        "model.dim": 6,
        "model.local.updates": 3,
        "model.server.learning_rate": 30,
        "model.probing": {"after": 6, "interactions": [1, 20], "of_bound": [1]},
        "data.repeated_selection": {"after": 6, "clients": 20},
    },
    "axes": {"data": {"synthetic": {"data.users": 60, "data.items": 400, "data.mean_interactions": 40}}},
    "record": {"every_n_rounds": 0},
    "attacks": {"pac": {}, "pac-spectral": {}, "identifiability/chance": {}},
    "after": ["theorem", "clients"],
}
NOISY = [{"class_path": "RowNoise", "init_args": {"scale": 0.01}}]


def run(tmp_path: Path, *, attacked: list[int] | None = None, page: bool = False, **changes: Any) -> list[Result]:
    content = {**SMALL, **changes, "set": {**SMALL["set"], **changes.get("set", {})}}
    if attacked is not None:
        content["rounds"] = {"which": attacked}
    assert reproduce(tmp_path, yaml.safe_dump(content), page=page) == 0
    return read(tmp_path / "out")


def value(results: list[Result], name: str, metric: str, **setting: Any) -> float:
    found = [
        r for r in results if (r.attack, r.metric) == (name, metric) and setting.items() <= r.setting.items()
    ]  # fmt: skip
    assert len(found) == 1, found
    return found[0].mean


@pytest.mark.integration
def test_theorem_1_holds_and_the_client_loses_nothing(tmp_path: Path) -> None:
    after, metrics = ["theorem", "sharpness", "clients"], [*SMALL["metrics"], "sharpness"]
    results = run(tmp_path, after=after, metrics=metrics, page=True)
    assert value(results, "pac", "success", of_bound=1) >= 0.95
    assert value(results, "theorem-1 by pac", "sharpness") == 1  # the only point
    assert value(results, "pac-spectral", "success", interactions=20) == 1
    assert abs(value(results, "chance", "error", interactions=20) - 0.5) < 0.15
    assert value(results, "client", "cosine-after") == pytest.approx(1)
    assert value(results, "client", "preference-rate") == pytest.approx(0.3, abs=0.02)
    assert value(results, "theorem-1", "bound") > 1
    assert value(results, "client", "hr@10", when="after restoring") == value(
        results, "client", "hr@10", when="before the attack"
    )
    # Proposition 1: the estimate errs on the labels as the client's own vector does, since it errs nowhere else.
    assert value(results, "pac-spectral", "label-error", interactions=20) == pytest.approx(
        value(results, "own-vector", "label-error", interactions=20)
    )
    assert "success against interactions" in (tmp_path / "out/report.html").read_text()


@pytest.mark.integration
def test_other_probes_move_the_client_and_are_noticed_or_not(tmp_path: Path) -> None:
    probing = {"after": 6, "interactions": [1, 20], "theorem": 2, "tolerance": 0.2, "probe": "shuffled"}
    results = run(
        tmp_path,
        attacked=[6, 7],
        set={"model.probing": probing, "model.defenses": NOISY},
        metrics=["error", "cosine-after", "detected", "false-alarm"],
        record={"every_n_rounds": 2},
        after=["clients", {"probe-check": {"draws": 7}}],
    )
    assert value(results, "client", "cosine-after") < 0.999
    assert value(results, "pac-spectral", "error", interactions=20) < 0.3
    assert value(results, "probe-check", "detected") == 1
    assert value(results, "probe-check", "false-alarm") < 1
    assert {r.n for r in results if r.metric == "detected"} == {7}
    assert {r.n for r in results if r.metric == "false-alarm"} == {3}


@pytest.mark.integration
def test_campaigns_are_averaged_before_people_are_counted(tmp_path: Path) -> None:
    probing = {"after": 6, "interactions": [1], "theorem": 1, "campaigns": 3}
    results = run(tmp_path, set={"model.probing": probing}, metrics=["error"], after=[])
    assert {r.n for r in results} == {20}


@pytest.mark.integration
def test_a_passive_server_learns_from_honest_rounds(tmp_path: Path) -> None:
    results = run(
        tmp_path,
        set={"model.probing": None, "data.repeated_selection": None, "trainer.max_steps": 6},
        metrics=["error"],
        record={"sums_at": [1, 2, 6], "clients": 20},
        after=["reached"],
        page=True,
    )
    assert value(results, "pac-spectral", "error", rounds=2) < 0.3
    assert abs(value(results, "chance", "error", rounds=2) - 0.5) < 0.15
    assert {r.setting["rounds"] for r in results} == {1, 2}  # six rounds are reached by few
    assert "<td>passive</td>" in (tmp_path / "out/report.html").read_text()


def test_the_hits_are_those_of_the_modules_own_metric() -> None:
    data = clients(evaluation_negatives=20)
    module = learner(data)
    for batch in data.val_dataloader():
        module.update_metrics(batch)
    users = module.private[USER_EMBEDDING]
    hits = held_out_hits(data.val_dataloader(), module.item_embedding.weight.detach(), users)
    assert float(hits.nanmean()) == pytest.approx(float(module.hit_rate.compute()))
    nothing = torch.zeros_like(module.item_embedding.weight)
    assert float(held_out_hits(data.val_dataloader(), nothing, users).nanmean()) == 0


@pytest.mark.integration
@pytest.mark.parametrize("step", ["theorem", "clients", "probe-check"])
def test_steps_on_probes_need_a_server_that_probes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    honest = {"model.probing": None, "data.repeated_selection": None, "trainer.max_steps": 2}
    changes = {"set": {**SMALL["set"], **honest}, "record": {}, "attacks": {}, "after": [step], "metrics": ["error"]}
    assert reproduce(tmp_path, yaml.safe_dump({**SMALL, **changes})) == 2
    assert "model.probing" in capsys.readouterr().err


def test_the_least_share_of_a_bound_by_hand() -> None:
    points, curves = np.array([0.01, 0.1, 1.0]), np.repeat([[0, 1, 1], [0, 0, 1], [0, 0, 1], [0, 1, 1]], 5, axis=0)
    least, influences = least_share(points, curves, 0.75)  # the means are 0, 0.5, 1
    assert least == pytest.approx(10**-0.5)
    # With the weight w on one more client that succeeds at the middle point, the mean there is (10 + w) / (20 + w).
    moved = [least_share(points, np.vstack([curves, *[[0, 1, 1]] * extra]), 0.75)[0] for extra in (0, 1)]
    assert influences[0] / 20 == pytest.approx(moved[1] - moved[0], rel=0.1)
    assert influences.sum() == pytest.approx(0)
    assert least_share(points, curves, 1.0)[0] == 1
    assert np.isnan(least_share(points, np.zeros((4, 3)), 0.9)[0])
    assert least_share(points, np.ones((4, 3)), 0.9)[0] == 0.01  # at the first point, or before it
    assert least_share(points, np.array([[1, 0, 1]]), 0.9)[0] > 0.1  # it has to stay


@pytest.mark.integration
def test_the_calls_so_far_have_a_total_epsilon(tmp_path: Path) -> None:
    probing = {"after": 6, "interactions": [1, 20], "theorem": 2, "tolerance": 0.2}
    options: dict[str, Any] = {"metrics": ["error"], "after": ["privacy"]}
    settings = {"model.probing": probing, "model.defenses": NOISY}
    results = run(tmp_path, set={**settings, "model.clip": 0.5}, **options)
    epsilons = {r.setting["interactions"]: (r.setting["epsilon"], r.setting["epsilon_label"]) for r in results}
    for calls, (of_client, of_label) in epsilons.items():
        sensitivity = 2 * 0.1 * 0.5
        assert of_label == pytest.approx(composed_epsilon((0.01 / sensitivity,), calls, 1e-5), rel=0.01)
        assert of_client == pytest.approx(composed_epsilon((0.01 / (sensitivity * 10**0.5),), calls, 1e-5), rel=0.01)
    (tmp_path / "unclipped").mkdir()
    unclipped = run(tmp_path / "unclipped", set=settings, **options)
    assert {(r.setting["epsilon"], r.setting["epsilon_label"]) for r in unclipped} == {("inf", "inf")}


@pytest.mark.integration
def test_noise_in_every_row_hides_what_clients_labelled(tmp_path: Path) -> None:
    noise = {"class_path": "LocalDP", "init_args": {"clip": 10, "epsilon": 500, "delta": 1e-5}}
    honest = {"model.probing": None, "data.repeated_selection": None, "trainer.max_steps": 3, "model.defenses": [noise]}
    attacks: dict[str, Any] = {"pac": {}, "pac-spectral": {}, "pac-likelihood": {}, "identifiability/chance": {}}
    options: dict[str, Any] = {"metrics": ["error", "label-error"], "after": [], "attacks": attacks}
    results = run(tmp_path, set=honest, record={"sums_at": [1, 2], "clients": 20}, **options)
    together = {"pac-likelihood+prior", "identifiability/prior"}
    assert {r.attack for r in results} == {"pac", "pac-spectral", "pac-likelihood", "chance"} | together
    for metric in ("error", "label-error"):
        assert 0.2 < value(results, "pac-likelihood", metric, rounds=1) < 0.8  # too much noise for such few messages


def test_options_of_steps_are_checked() -> None:
    mistakes = {"draws": {"probe-check": {"draws": 0}}, "share": {"reached": {"share": 2}}}
    for option, step in {**mistakes, "delta": {"privacy": {"delta": 1}}}.items():
        with pytest.raises(InputError, match=option):
            after_steps([step])
    assert {"theorem", "clients", "privacy", "probe-check", "reached", "sharpness"} <= set(STEPS)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"data.likes": 0.5}, "Assumption 1"),
        ({"model.loss": "perceptron"}, "Assumption 2"),
        ({"model.defenses": NOISY}, "theorem 1"),
        ({"model.probing": {"theorem": 3}}, "theorem 3"),
        ({"model.probing": {"probe": "ones"}}, "ones"),
        ({"data.repeated_selection": {"after": 7}}, "data.repeated_selection.after of 6"),
    ],
)
def test_what_no_theorem_allows_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], found: str
) -> None:
    merged = {key: {**SMALL["set"].get(key, {}), **own} for key, own in changes.items() if isinstance(own, dict)}
    assert reproduce(tmp_path, yaml.safe_dump({**SMALL, "set": {**SMALL["set"], **changes, **merged}})) == 2
    assert found in capsys.readouterr().err
