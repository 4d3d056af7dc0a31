"""Jobs of NVFlare's simulator whose sites have a guard: honest rounds arrive, planted faults do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.fl_exception import UnsafeJobError
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants

from fedleak_guard import command
from fedleak_guard.chained_log import read_log
from fedleak_guard.nvflare import EgressCheck, EgressWatch
from tests.guard_toys import log_of, update, write_policy
from tests.nvflare.guard_site import Site, result, task

ROOT = Path(__file__).resolve().parents[2]


def simulate(folder: Path, fault: str) -> list[dict[str, object]]:
    """Runs the job, and returns what arrived at the server."""
    command = [sys.executable, "-m", "tests.nvflare.guarded", str(folder), fault]
    environment = {**os.environ, "PYTHONPATH": ":".join(str(ROOT / part) for part in ("", "recorder", "guard"))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=500)
    (folder / "said").write_bytes(done.stdout + done.stderr)
    arrived = folder / "arrived.jsonl"
    return [json.loads(line) for line in arrived.read_text().splitlines()] if arrived.exists() else []


@pytest.mark.integration
def test_honest_rounds_of_a_simulation_arrive(tmp_path: Path) -> None:
    arrived = simulate(tmp_path, "none")
    assert [one["code"] for one in arrived] == ["OK"] * 4, (tmp_path / "said").read_text()
    assert all(one["meta"] == ["initial_metrics", "num_examples"] for one in arrived)
    entries, _ = read_log(log_of(tmp_path))
    assert [entry["event"] for entry in entries] == ["released"] * 4
    assert all("own-label-counts" in entry["checks"] for entry in entries)  # with the records that the policy names
    assert (tmp_path / "evidence/egress.json").is_file()
    assert (tmp_path / "evidence/attack_results.json").is_file()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("dp-off", "declared-noise"),
        ("per-person", "metric-values"),
        ("tensor", "allowed-tensors"),
        ("model", "received-hash"),
        ("no-filter", ""),
        ("job-filter", ""),
    ],
)
def test_a_planted_fault_of_a_simulation_does_not_arrive(tmp_path: Path, fault: str, check: str) -> None:
    arrived = simulate(tmp_path, fault)
    said = (tmp_path / "said").read_text()
    assert not any(one["data"] for one in arrived), said
    assert "nothing left the site" in said
    if check:
        entries, _ = read_log(log_of(tmp_path))
        assert {entry["event"] for entry in entries} == {"refused"}
        assert all(entry["checks"][check]["found"] for entry in entries)


def test_a_deployed_site_applies_the_filter_of_its_privacy_json(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.works_on(task(3))
    leaving = site.sends(result({MetaKey.NUM_STEPS_CURRENT_ROUND: 5}))
    assert all(np.array_equal(from_shareable(leaving).data[name], value) for name, value in update().items())
    (entry,) = read_log(log_of(tmp_path))[0]
    assert (entry["event"], entry["round"], entry["job"]) == ("released", 3, "job")
    assert command.main(["check-privacy", str(site.privacy)]) == 0


def test_tensors_leave_as_tensors_of_their_type(tmp_path: Path) -> None:
    site = Site(tmp_path, "tensors:\n  - {name: '*', dtype: bfloat16}\n", whole=False)
    site.works_on(task())
    sent = {name: torch.from_numpy(value).bfloat16() for name, value in update().items()}
    left = from_shareable(site.sends(DXO(DataKind.WEIGHT_DIFF, dict(sent), {}).to_shareable())).data
    assert all(torch.equal(left[name], value) and left[name].dtype == torch.bfloat16 for name, value in sent.items())


def test_headers_and_peer_data_do_not_leave(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.works_on(task())
    sent = result()
    sent.set_header("covert", "patient 7")
    sent.set_header(AppConstants.CURRENT_ROUND, 4)
    leaving = site.sends(sent)
    assert "patient 7" not in str(leaving)
    assert leaving.get_header(AppConstants.CURRENT_ROUND) == 0  # that of the task


def _with(sent: Shareable, key: str, value: object) -> Shareable:
    sent[key] = value
    return sent


@pytest.mark.parametrize(
    "sent",
    [
        Shareable(),
        Shareable({"numbers": [1, 2]}),
        _with(result(), "more", "patient 7"),
        result({"note": "patient 7"}),
        result({MetaKey.NUM_STEPS_CURRENT_ROUND: "patient 7"}),
        result({MetaKey.NUM_STEPS_CURRENT_ROUND: 2**60}),
        DXO(DataKind.APP_DEFINED, "patient 7").to_shareable(),
        DXO(DataKind.COLLECTION, {"a": DXO(DataKind.WEIGHT_DIFF, update())}).to_shareable(),
        DXO(DataKind.ANALYTIC, {"loss": 1}).to_shareable(),
        DXO(DataKind.METRICS, {"loss": 1}).to_shareable(),
        DXO(DataKind.WEIGHT_DIFF, {"weight": "patient 7"}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"weight": np.ones((9, 9), "f")}).to_shareable(),
    ],
)
def test_what_the_guard_does_not_understand_does_not_leave(tmp_path: Path, sent: Shareable) -> None:
    site = Site(tmp_path)
    site.works_on(task())
    with pytest.raises(UnsafeJobError, match="the site's guard refused the message"):
        site.sends(sent)


def test_an_error_of_the_client_leaves_as_a_code_alone(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.works_on(task())
    failed = make_reply(ReturnCode.EXECUTION_EXCEPTION, {"text": "patient 7"})
    failed["more"] = update()
    assert str(site.sends(failed)) == str(make_reply(ReturnCode.EXECUTION_EXCEPTION))
    site.works_on(task())
    assert site.sends(make_reply(ReturnCode.TASK_UNSUPPORTED)).get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    site.works_on(task())
    assert site.sends(make_reply("patient 7")).get_return_code() == ReturnCode.EXECUTION_EXCEPTION


def test_a_change_after_the_check_does_not_leave(tmp_path: Path) -> None:
    class Adds:
        def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
            from_shareable(shareable).data["bias"][0] += 1
            return shareable

    site = Site(tmp_path)
    site.works_on(task())
    leaving = site.sends(result(), after=Adds())
    assert set(leaving) == {"__headers__"}
    assert leaving.get_return_code() == ReturnCode.UNSAFE_JOB


def test_a_released_result_leaves_once(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.works_on(task())
    leaving = site.sends(result())
    site.watch.handle_event(EventType.AFTER_TASK_RESULT_FILTER, site.context)
    assert leaving.get_return_code() == ReturnCode.UNSAFE_JOB


def test_the_filter_refuses_without_the_component(tmp_path: Path) -> None:
    contexts = FLContextManager(identity_name="alone", job_id=str(tmp_path))
    with pytest.raises(UnsafeJobError):
        EgressCheck(str(write_policy(tmp_path))).process(result(), contexts.new_context())


def test_the_component_at_a_server_changes_nothing(tmp_path: Path) -> None:
    contexts = FLContextManager(identity_name="server", private_stickers={ReservedKey.PROCESS_TYPE: "SJ"})
    context, sent = contexts.new_context(), result()
    context.set_prop(FLContextKey.TASK_RESULT, sent, private=True, sticky=False)
    EgressWatch().handle_event(EventType.AFTER_TASK_RESULT_FILTER, context)
    assert "DXO" in sent


@pytest.mark.parametrize("missing", ["policy", "filter", "scope", "component"])
def test_the_check_of_privacy_json_names_what_is_missing(
    tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path)
    content = json.loads(site.privacy.read_text())
    if missing == "policy":
        (tmp_path / "policy.yaml").unlink()
    elif missing == "filter":
        content["scopes"].append({"name": "open", "task_result_filters": []})
    elif missing == "scope":
        content["default_scope"] = "open"
    else:
        content["components"] = []
    site.privacy.write_text(json.dumps(content))
    assert command.main(["check-privacy", str(site.privacy)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
