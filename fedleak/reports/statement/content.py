"""The content of a statement: its parts with the meaning of each field, without what finds the values."""

from typing import Any, Literal

from fedleak.reports.statement.assessment_content import Assessment
from fedleak.reports.statement.gaps_content import NotTried
from fedleak.reports.statement.lowering_content import Lowering
from fedleak.reports.statement.measured_content import Combined, Measured
from fedleak.reports.statement.numbers import Strict
from fedleak.reports.statement.privacy_content import Privacy
from fedleak.reports.statement.sums_content import Sums
from fedleak.reports.statement.system_file import System


class Scope(Strict):
    """What was attacked, by whom."""

    data: str
    """name of the recorded data, with generated data named as such"""
    rounds: int
    """number of rounds in the recording"""
    messages: int
    """number of messages in these rounds; a sum over several clients is one"""
    summed: int
    """largest number of clients in one message; 1 for single updates"""
    clients: int
    """largest number of clients about whom one attack was scored"""
    adversary: str
    """who the adversary is, in a sentence"""
    active: bool
    """whether the server deviated from the protocol"""
    learner: str | None
    """the clients' algorithm, null if it is unknown"""
    parameters: dict[str, list[int]]
    """recorded parameters by name, with their shapes"""
    rows_only: list[str]
    """of these, tables of which only the rows of served items are recorded"""
    releases: list[dict[str, Any]]
    """what the recording says that clients do before they send: clip, noise_scale, parameters"""
    outside: list[str]
    """what this audit did not cover"""


class Verdict(Strict):
    """Verdict on a limit that the controller set."""

    metric: str
    """limited metric"""
    limit: float
    """limit"""
    verdict: str
    """verdict of the gate"""
    message: str
    """the verdict in a sentence, with the attack and the metric"""
    everyday: str
    """the limit and its verdict in everyday words"""


class Provenance(Strict):
    """How the statement was made, and how to repeat it."""

    created: str
    """date and time, UTC"""
    command: str
    """command line"""
    commit: str | None
    """commit of fedleak, with a plus if files were changed"""
    versions: dict[str, str]
    """versions of packages"""
    seed: int
    """seed of the attacks"""
    seconds: float
    """wall time"""
    hardware: str
    """hardware"""
    recording_sha256: str
    """hash of manifest.json and of the sorted lines `file sha256` of its journals"""
    recording_seed: int | None
    """seed of the training"""
    recording_commit: str | None
    """commit of the code that recorded"""
    system_sha256: str
    """hash of system.yaml"""
    results_sha256: str
    """hash of results.json"""
    data_sha256: str
    """hash of the clients' data, as recorded"""


class Statement(Strict):
    """A statement on what was measured, declared and not looked at."""

    format: Literal[3]
    """version of this schema"""
    summary: list[str]
    """the statement in five sentences"""
    scope: Scope
    """what was attacked, by whom"""
    measured: list[Measured]
    """result by question: those about the content of a client's data, then those about whose update it is; the largest
    leak first"""
    declared: System
    """declaration of the controller, verbatim"""
    combined: list[Combined]
    """measured and declared numbers together, by question"""
    privacy: Privacy
    """differential privacy"""
    sums: Sums | None
    """for how many rounds sums hide a client, null where the server sees single updates"""
    assessment: Assessment
    """annex for an impact assessment: what the controller declares, and what is open"""
    not_tried: NotTried
    """what was not tried, by name"""
    lowering: Lowering
    """what would lower the leak, where that was measured"""
    gate: list[Verdict]
    """verdict on each limit of the controller, empty without limits"""
    provenance: Provenance
    """how the statement was made"""
    limits: list[str]
    """what the statement does not say"""
    generated: str
    """that the data are generated; empty if they are not"""
    terms: dict[str, str]
    """terms and what they mean, from docs/start/glossary.md"""

    def content(self) -> bytes:
        """Content of statement.json."""
        return (self.model_dump_json(indent=2) + "\n").encode()
