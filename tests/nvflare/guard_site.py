"""A site of NVFlare with the guard, in this process."""

from collections.abc import Mapping
from pathlib import Path

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FilterKey, FLContextKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.apis.workspace import Workspace
from nvflare.app_common.app_constant import AppConstants
from nvflare.private.fed.app.fl_conf import create_privacy_manager

from tests.guard_toys import model, update, write_policy
from tests.places import ROOT


class Site:
    """A site whose privacy.json NVFlare itself has read, as in a deployment, without its transport."""

    def __init__(self, folder: Path, more: str = "", *, whole: bool = True) -> None:
        page = (ROOT / "docs/site/guard.md").read_text(encoding="utf-8")
        content = page.split("```json\n")[1].split("```")[0]
        policy = write_policy(folder, more)
        if not whole:
            policy.write_text(f"format: 1\nevidence: {folder}/evidence\n{more}")
        (folder / "local").mkdir(exist_ok=True)
        (folder / "startup").mkdir(exist_ok=True)
        self.privacy = folder / "local/privacy.json"
        self.privacy.write_text(content.replace("/etc/fedleak/policy.yaml", str(policy)))
        manager = create_privacy_manager(Workspace(str(folder), "site-1"), names_only=False)
        (self.watch,) = manager.components.values()
        stickers = {FLContextKey.SCOPE_OBJECT: manager.get_scope("")}
        contexts = FLContextManager(identity_name=str(folder), job_id="job", private_stickers=stickers)
        self.context: FLContext = contexts.new_context()

    def works_on(self, task: Shareable) -> None:
        self.context.set_prop(FLContextKey.TASK_DATA, task, private=True, sticky=False)
        self.watch.handle_event(EventType.BEFORE_TASK_EXECUTION, self.context)

    def sends(self, result: Shareable, *, after: object = None) -> Shareable:
        """What leaves of a result, after the filters of the site and of the job."""
        filters = {f"train/{FilterKey.OUT}": [after] if after else []}
        leaving = apply_filters("task_result_filters", result, self.context, filters, "train", FilterKey.OUT)
        self.context.set_prop(FLContextKey.TASK_RESULT, leaving, private=True, sticky=False)
        self.watch.handle_event(EventType.AFTER_TASK_RESULT_FILTER, self.context)
        return leaving


def task(number: int = 0) -> Shareable:
    made = DXO(DataKind.WEIGHTS, model()).to_shareable()
    made.set_header(AppConstants.CURRENT_ROUND, number)
    return made


def result(meta: Mapping[str, object] | None = None) -> Shareable:
    return DXO(DataKind.WEIGHT_DIFF, update(), dict(meta or {})).to_shareable()
