"""NVFlare component that reads the verdict of an audit before each round, and logs it, drops clients or ends the job.

Add it to the server's components after `fedleak_recorder.nvflare.RoundRecorder`. ``fedleak watch`` audits
the recording in a process of its own. It works with controllers that announce their rounds (``ROUND_STARTED``), such as
``FedAvg`` and ``ScatterAndGather``. To drop clients, a controller that samples them, such as ``FedAvg``, leaves out
those that `DropsClients` names.
"""

from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_event_type import AppEventType

from fedleak_recorder.errors import InputError, require
from fedleak_recorder.frameworks.nvflare import round_of
from fedleak_recorder.verdict import Action, Decision, LimitExceededError, Missing, VerdictFile, remaining


class RoundVerdict(FLComponent):
    """Server component that asks for a verdict when a round starts, before any client gets its task.

    A job that is ended fails with the reason as its message, and its recording is closed.

    Args:
        path: see `fedleak_recorder.verdict.VerdictFile`; an absolute path.
        on_exceeded: the same; ``drop`` needs a controller with `DropsClients`, and ends the job with another one.
        missing: the same.
        wait_s: the same.
        behind: the same.
        recorder: id of the `RoundRecorder` among the components.
    """

    def __init__(
        self,
        path: str,
        on_exceeded: Action = "stop",
        missing: Missing = "closed",
        wait_s: float = 60.0,
        behind: int = 0,
        recorder: str = "recorder",
    ) -> None:
        super().__init__()
        # NVFlare reads the arguments from attributes.
        self.path = path
        self.on_exceeded = on_exceeded
        self.missing = missing
        self.wait_s = wait_s
        self.behind = behind
        self.recorder = recorder
        self._verdict = VerdictFile(path, on_exceeded=on_exceeded, missing=missing, wait_s=wait_s, behind=behind)
        self.decision = Decision()
        self.drops = False
        """Whether the controller is known to leave out dropped clients; `DropsClients` says so in the first round."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Decides at the start of a round."""
        if event_type != AppEventType.ROUND_STARTED:
            return
        try:
            self.decision = self._verdict.before(round_of(fl_ctx), self.key(fl_ctx))
            if self.decision.dropped and not self.drops:
                controller = "controller with fedleak_recorder.nvflare_verdict.DropsClients"
                raise LimitExceededError(f"{self.decision.reason}, and no {controller} can leave them out")
            if self.decision.stop:
                raise LimitExceededError(self.decision.reason)
        except (InputError, LimitExceededError) as error:
            self.system_panic(str(error), fl_ctx)

    def key(self, fl_ctx: FLContext) -> bytes | None:
        """Secret key of the recorder; None before its first round.

        Raises:
            InputError: there is no such component.
        """
        component = fl_ctx.get_engine().get_component(self.recorder)
        way_out = 'Add RoundRecorder(...) with id="recorder", or give its id.'
        require(hasattr(component, "key"), f"a RoundRecorder named {self.recorder!r} on the server", component, way_out)
        key: bytes | None = component.key
        return key


class DropsClients:
    """Part of a controller that leaves out the clients that a `RoundVerdict` drops.

    Name it before the controller, in a class of your own: ``class Controller(DropsClients, FedAvg): pass``. The job
    ends if no client is left.
    """

    verdict = "verdict"
    """Id of the `RoundVerdict` among the components."""

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Names of the clients of a round, without those that are dropped."""
        sampled: list[str] = super().sample_clients(num_clients)  # type: ignore[misc]
        component = self.get_component(self.verdict)  # type: ignore[attr-defined]
        if component is None:
            return sampled
        component.drops = True
        if not component.decision.dropped:
            return sampled
        try:
            return remaining(sampled, component.decision, component.key(self.fl_ctx))  # type: ignore[attr-defined]
        except LimitExceededError as error:
            self.panic(str(error))  # type: ignore[attr-defined]
            return []
