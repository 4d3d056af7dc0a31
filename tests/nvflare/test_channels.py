"""Ways to make something arrive at NVFlare's server that no check saw: pairs of results leave as the same bytes.

A sender here knows everything and makes the result as it likes, but runs no code in the process of the guard.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_exception import UnsafeJobError
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.utils import fobs

from fedleak_guard.capacity import parts_of, total_of
from fedleak_guard.policy import read_policy
from tests.guard_toys import update
from tests.nvflare.guard_site import Site, result, task

METRICS = "metrics: {names: [loss, other, 'by.*'], max_values: 8}\n"
STEPS = f"metrics: {{names: [loss, other, {MetaKey.NUM_STEPS_CURRENT_ROUND}], max_values: 8}}\n"


def left(folder: Path, sent: Shareable, policy: str = METRICS) -> Shareable:
    """What leaves of a result of the task of round 3."""
    folder.mkdir()
    site = Site(folder, policy)
    site.works_on(task(3))
    return site.sends(sent)


def sent(
    data: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    headers: Mapping[str, Any] | None = None,
    kind: str = DataKind.WEIGHT_DIFF,
) -> Shareable:
    metrics = {"loss": 0.5, "other": 2.0}
    made = DXO(
        kind,
        dict(update() if data is None else data),
        {"num_examples": 50, MetaKey.INITIAL_METRICS: metrics, **(meta or {})},
    ).to_shareable()
    for key, value in (headers or {}).items():
        made.set_header(key, value)
    return made


def _reversed(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(reversed(list(values.items())))


def _with_entry_of_dxo(value: Any) -> Shareable:
    made = sent()
    made["DXO"]["note"] = value
    return made


SAME: dict[str, Callable[[], Shareable]] = {
    "order of tensors": lambda: sent(_reversed(update())),
    "order of numbers": lambda: sent({name: np.asfortranarray(value) for name, value in update().items()}),
    "a view": lambda: sent({name: np.repeat(value, 2, axis=0)[::2] for name, value in update().items()}),
    "order of metrics": lambda: sent(meta={MetaKey.INITIAL_METRICS: {"other": 2.0, "loss": 0.5}}),
    "type of a metric": lambda: sent(meta={MetaKey.INITIAL_METRICS: {"loss": np.float64(0.5), "other": 2}}),
    "place of a metric": lambda: sent(meta={MetaKey.INITIAL_METRICS: {"other": 2.0}, "loss": 0.5}),
    "type of the examples": lambda: sent(meta={"num_examples": np.int16(50)}),
    "rounds of the meta data": lambda: sent(
        meta={MetaKey.START_ROUND: 1961, MetaKey.CURRENT_ROUND: 2, MetaKey.TOTAL_ROUNDS: "patient 7"}
    ),
    "rounds of the headers": lambda: sent(
        headers={AppConstants.START_ROUND: 1961, AppConstants.CURRENT_ROUND: 2, AppConstants.NUM_ROUNDS: 3}
    ),
    "other headers": lambda: sent(headers={"note": "patient 7", ReservedHeaderKey.ERROR: "patient 7"}),
    "cookies": lambda: sent(headers={ReservedHeaderKey.COOKIE_JAR: {"note": "patient 7"}}),
    "steps that the policy does not name": lambda: sent(meta={MetaKey.NUM_STEPS_CURRENT_ROUND: 1961}),
    "empty meta data": lambda: sent(meta={"patient 7": {}, "C50.9": None, "1961": ""}),
    "history of filters": lambda: sent(meta={MetaKey.FILTER_HISTORY: []}),
    "entry of the exchange object": lambda: _with_entry_of_dxo("patient 7"),
    "kind as a text": lambda: sent(kind="WEIGHT_DIFF"),
}


@pytest.mark.parametrize("name", SAME)
def test_results_that_differ_in_what_is_no_content_leave_as_the_same_bytes(tmp_path: Path, name: str) -> None:
    common_decomposers.register()
    plain = fobs.dumps(left(tmp_path / "plain", sent()))
    assert b"DXO" in plain
    assert fobs.dumps(left(tmp_path / "other", SAME[name]())) == plain


REFUSED: dict[str, Callable[[], Shareable]] = {
    "an empty mapping of a metric": lambda: sent(meta={MetaKey.INITIAL_METRICS: {"patient 7": {}}}),
    "an empty mapping of an allowed one": lambda: sent(meta={MetaKey.INITIAL_METRICS: {"by": {"patient 7": {}}}}),
    "an empty mapping of the meta data": lambda: sent(meta={"note": {"patient 7": {}}}),
    "empty lists": lambda: sent(meta={MetaKey.INITIAL_METRICS: {"loss": [[], [[]], []]}}),
    "an empty mapping as data": lambda: sent(data={"patient 7": {}}, kind=DataKind.METRICS),
    "a tensor that the task has not": lambda: sent({**update(), "patient 7": np.zeros(0, "f")}),
    "tensors of two frameworks": lambda: sent({**update(), "bias": torch.from_numpy(update()["bias"])}),
    "examples that are no number": lambda: sent(meta={"num_examples": "patient 7"}),
    "a collection": lambda: sent({"patient 7": DXO(DataKind.WEIGHT_DIFF, update())}, kind=DataKind.COLLECTION),
    "a model in its own form": lambda: sent(update(), kind=DataKind.FL_MODEL),
    "bytes": lambda: sent({**update(), "bias": b"patient 7"}),
    "another content type": lambda: sent(headers={ReservedHeaderKey.CONTENT_TYPE: "patient 7"}),
    "a filter history": lambda: sent(meta={MetaKey.FILTER_HISTORY: ["patient 7"]}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_say_more_does_not_leave(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeJobError, match="the site's guard refused the message"):
        left(tmp_path / "site", REFUSED[name]())


def test_steps_leave_as_a_metric_that_the_policy_names(tmp_path: Path) -> None:
    made = left(tmp_path / "named", sent(meta={MetaKey.NUM_STEPS_CURRENT_ROUND: 5}), STEPS)
    assert made["DXO"]["meta"][MetaKey.NUM_STEPS_CURRENT_ROUND] == 5
    assert made["DXO"]["meta"][MetaKey.INITIAL_METRICS] == {"loss": 0.5, "other": 2.0}
    few = STEPS.replace("max_values: 8", "max_values: 8, max_bits: 20.0")
    with pytest.raises(UnsafeJobError):
        left(tmp_path / "few", sent(meta={MetaKey.NUM_STEPS_CURRENT_ROUND: 2**31 - 1}), few)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_tensors_of_torch_leave_in_the_type_that_was_checked(tmp_path: Path, dtype: torch.dtype) -> None:
    values = {name: torch.ones(value.shape).to(dtype) for name, value in update().items()}
    made = left(tmp_path / "site", DXO(DataKind.WEIGHT_DIFF, values).to_shareable())
    assert {value.dtype for value in made["DXO"]["data"].values()} == {torch.float32}  # as the policy asks for


def test_tensors_of_bfloat16_leave_as_such(tmp_path: Path) -> None:
    values = {name: torch.ones(value.shape, dtype=torch.bfloat16) for name, value in update().items()}
    rules = "tensors: [{name: '*', dtype: bfloat16}]\n"
    site = Site(tmp_path, rules, whole=False)
    site.works_on(task(3))
    made = site.sends(DXO(DataKind.WEIGHT_DIFF, values).to_shareable())
    assert {value.dtype for value in made["DXO"]["data"].values()} == {torch.bfloat16}


def test_no_more_kinds_of_empty_results_leave_than_are_counted(tmp_path: Path) -> None:
    rules = "tensors: []\nmetrics: {names: [loss], max_bits: 0.5}\nupdate: {max_examples: 1}\n"
    results = set[str]()
    for kind, examples in itertools.product(
        (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF, DataKind.METRICS), ({}, {"num_examples": 0}, {"num_examples": 1})
    ):
        folder = tmp_path / str(len(results))
        folder.mkdir()
        site = Site(folder, rules, whole=False)
        site.works_on(task(3))
        results.add(str(site.sends(DXO(kind, {}, dict(examples)).to_shareable())))
    policy = read_policy(folder / "policy.yaml")
    assert len(results) == 9
    assert math.log2(len(results) + 1) <= total_of(parts_of(policy))  # 1: a refusal


def test_all_failures_leave_as_one_code(tmp_path: Path) -> None:
    codes = [code for name, code in vars(ReturnCode).items() if name.isupper() and code != ReturnCode.OK]
    made = {str(left(tmp_path / code, make_reply(code))) for code in [*codes, "patient 7"]}
    assert made == {str(make_reply(ReturnCode.EXECUTION_EXCEPTION))}


# After the last filter


def about_to_be_sent(site: Site, leaving: Shareable, cookies: Any) -> None:
    """What NVFlare does between the last filter and sending."""
    site.context.set_prop(FLContextKey.TASK_NAME, "train", private=True, sticky=False)
    site.context.set_prop(FLContextKey.TASK_ID, "id", private=True, sticky=False)
    leaving.set_header(ReservedHeaderKey.AUDIT_EVENT_ID, "")
    if cookies:
        leaving.set_cookie_jar(cookies)
    leaving.set_header(ReservedHeaderKey.TASK_NAME, "train")
    leaving.set_header(ReservedHeaderKey.TASK_ID, "id")
    site.watch.handle_event(EventType.BEFORE_SEND_TASK_RESULT, site.context)


def _adds_a_header(leaving: Shareable) -> None:
    leaving.set_header("note", "patient 7")


def _adds_an_entry(leaving: Shareable) -> None:
    leaving["note"] = "patient 7"


def _changes_a_number(leaving: Shareable) -> None:
    leaving["DXO"]["data"]["bias"][0] += 1


def _changes_the_order_of_numbers(leaving: Shareable) -> None:
    leaving["DXO"]["data"]["weight"] = np.asfortranarray(leaving["DXO"]["data"]["weight"])


def _changes_the_order_of_tensors(leaving: Shareable) -> None:
    leaving["DXO"]["data"] = _reversed(leaving["DXO"]["data"])


def _changes_the_examples(leaving: Shareable) -> None:
    leaving["DXO"]["meta"]["num_examples"] = 51


@pytest.mark.parametrize(
    "change",
    [
        _adds_a_header,
        _adds_an_entry,
        _changes_a_number,
        _changes_the_order_of_numbers,
        _changes_the_order_of_tensors,
        _changes_the_examples,
    ],
)
def test_a_change_after_the_last_filter_does_not_leave(tmp_path: Path, change: Callable[[Shareable], None]) -> None:
    site = Site(tmp_path, METRICS)
    site.works_on(task())
    leaving = site.sends(sent())
    change(leaving)
    about_to_be_sent(site, leaving, None)
    assert leaving.get_return_code() == ReturnCode.UNSAFE_JOB
    assert set(leaving) == {"__headers__"}
    assert "patient" not in str(leaving)


def test_cookies_are_those_of_the_task(tmp_path: Path) -> None:
    site = Site(tmp_path, METRICS)
    asked = task()
    asked.set_cookie_jar({"server": "its own"})
    site.works_on(asked)
    leaving = site.sends(sent())
    jar = asked.get_cookie_jar()
    jar["note"] = "patient 7"  # by the executor, which has the task
    about_to_be_sent(site, leaving, jar)
    assert leaving.get_cookie_jar() == {"server": "its own"}
    assert leaving.get_return_code() == ReturnCode.OK
    assert "DXO" in leaving


def test_other_cookies_do_not_leave(tmp_path: Path) -> None:
    site = Site(tmp_path, METRICS)
    site.works_on(task())
    leaving = site.sends(sent())
    about_to_be_sent(site, leaving, "patient 7")
    assert leaving.get_return_code() == ReturnCode.UNSAFE_JOB
    assert "patient" not in str(leaving)


def test_what_was_released_is_sent(tmp_path: Path) -> None:
    site = Site(tmp_path, METRICS)
    site.works_on(task())
    leaving = site.sends(result())
    before = str(leaving["DXO"])
    about_to_be_sent(site, leaving, None)
    assert str(leaving["DXO"]) == before
