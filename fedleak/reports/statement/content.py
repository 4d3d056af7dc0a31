"""The content of a statement: its objects with the meaning of each field, without what finds the values."""

from typing import Any, Literal

from fedleak.reports.statement.numbers import Cell, Interval, Names, Number, Strict
from fedleak.reports.statement.system_file import Promise, System

Answer = Literal["yes", "slightly", "not shown", "cannot be said"]
"""Whether a result is beyond guessing and the best baseline."""


class Baseline(Strict):
    """Best baseline of the same question; one that reads no update where there is one."""

    attack: str
    """its name"""
    reads_update: bool
    """whether it reads the update, because the question has no baseline without it"""
    result: Interval
    """its mean"""
    worst_tenth: Interval | None
    """its own worst tenth of clients"""


class Rates(Strict):
    """Rates at the threshold with the highest true-positive rate within the acceptable false-positive rate."""

    asks: str
    """question about one candidate"""
    acceptable_fpr: float
    """declared largest false-positive rate"""
    fpr: Interval
    """realised false-positive rate, at most the declared one"""
    tpr: Interval
    """true-positive rate"""
    candidates: int
    """number of candidates with a score"""
    positives: int
    """number of the true ones"""
    clients: int
    """number of clients they are about"""


class Exposed(Strict):
    """A record that a client holds and that the attack finds most easily."""

    client: int
    """number of the client"""
    place: int
    """its place among the candidates"""
    others_above: int
    """number of candidates that the client does not hold with at least its score"""


class ByMetric(Strict):
    """Largest leak by one metric."""

    metric: str
    """metric"""
    meaning: str
    """meaning of the metric"""
    attack: str
    """best attack by it"""
    result: Interval
    """its mean over clients"""
    baseline: str | None
    """best baseline by it, null if there is none"""
    baseline_result: Interval | None
    """its mean"""


class Measured(Strict):
    """Result of one question, by the metric by which most is inferred."""

    question: str
    """family of attacks"""
    estimate: str
    """type of the attacks' estimates, which tells questions of one family apart"""
    infers: str
    """what the server infers, in words"""
    sensitivity: str | None
    """declared sensitivity, null if none is declared for this question"""
    attack: str
    """best attack, chosen by its mean"""
    attacks: int
    """number of attacks that it is the best of"""
    setting: dict[str, Cell]
    """setting of the result, e.g. the data"""
    sees: str
    """what the attack sees"""
    knows: str
    """what it knows beforehand"""
    names: Names
    """names of the question and the threat model in public taxonomies"""
    metric: str
    """metric of the result"""
    meaning: str
    """meaning of the metric"""
    direction: Literal["higher means that more is inferred", "lower means that more is inferred"]
    """direction of the metric"""
    result: Interval
    """mean over clients"""
    n: int
    """number of clients"""
    seeds: int
    """number of trainings"""
    guessing: float | None
    """value of guessing, null if it depends on the data"""
    certainty: float
    """value of a perfect attack, the ceiling"""
    certain: int
    """number of clients for whom the attack is perfect in all rounds"""
    baseline: Baseline | None
    """best baseline, null if there is none"""
    answer: Answer
    """whether the result is beyond guessing and the baseline, not by luck, and by how much of the way to certainty"""
    worst_tenth: Interval | None
    """mean over the tenth of the clients, or five of few, about whom most is inferred"""
    worst_clients: int
    """number of these clients"""
    worst_people: list[int]
    """their numbers with `--persons`, the worst first; else none"""
    most_exposed: list[Exposed]
    """records that the attack finds most easily, empty where it does not ask about single records"""
    rates: Rates | None
    """rates at one threshold, null where the attack ranks nothing or no acceptable rate is declared"""
    adds: str
    """what the update adds to what is known without it, in bits; empty where it was not measured"""
    not_run: list[str]
    """attacks on the same question, of the same family, that gave no result"""
    others: list[ByMetric]
    """the same question by the other metrics of a leak"""
    everyday: str
    """the result in everyday words"""
    sentence: str
    """the result in a sentence, with the attack and the metric"""


class Combined(Strict):
    """What a measured and declared numbers give together."""

    question: str
    """family of attacks"""
    estimate: str
    """type of the attacks' estimates, as in `measured`"""
    clients: int
    """declared number of clients, that of people where each has one"""
    prior: float
    """declared share of them of whom the answer is yes"""
    true: float
    """prior * clients"""
    exposed: Interval
    """tpr * prior * clients: of these, those that the attack names"""
    wrong: Interval
    """fpr * (1 - prior) * clients: others that it names"""
    precision: Interval | None
    """share of the named for whom the answer is yes; null if nobody is named"""
    lift: Interval | None
    """precision / prior"""
    sources: list[str]
    """where the numbers are in this file"""
    sentence: str
    """the result in a sentence"""


class Bound(Strict):
    """Lower bound of epsilon from canaries."""

    metric: str
    """epsilon-cp, epsilon-one-run, epsilon-one-run-fdp or epsilon-gdp, named for what it assumes"""
    value: Number
    """the bound, at 95% confidence"""
    n: int
    """number of canaries"""
    delta: float | None
    """delta of the bound, null if the audit does not say it"""
    rounds: int | None
    """number of rounds that it covers, null if the audit does not say it"""
    at_declared: Number
    """the same bound at the delta and the rounds of the declaration, null if it does not compare"""
    role: Literal["bound", "check"]
    """the bound, which is the only one to decide, or one of its checks: the largest of several 95% bounds is none"""
    refutes: bool | None
    """whether the bound exceeds the declared epsilon in its own terms; null for a check or if it does not compare"""
    note: str
    """why it does not compare, or what it means"""


class Sent(Strict):
    """Epsilon of the updates as they were sent."""

    mean: Interval
    """mean over clients"""
    worst: Number
    """largest of a client"""
    n: int
    """number of clients"""
    delta: float | None
    """delta of these, null if the audit does not say it"""
    messages: int | None
    """largest number of messages of a client that they cover, null if the audit does not say it"""
    at_declared: Number
    """largest of a client at the delta and the rounds of the declaration, null if it does not compare"""


class Level(Strict):
    """Line of the pyramid of NIST SP 800-226."""

    level: Literal["top", "middle", "bottom"]
    """level of the pyramid"""
    item: str
    """what a claim of differential privacy depends on"""
    status: Literal["checked", "declared", "not looked at"]
    """whether this audit checked it, the controller declares it, or neither"""
    note: str
    """what was found or declared"""


class Privacy(Strict):
    """Differential privacy: declared, as sent, and lower bounds."""

    declared: Promise | None
    """declaration of the controller"""
    recorded: Sent | None
    """epsilon by the clip and the noise that the recording declares, null if not looked at"""
    as_sent: Sent | None
    """epsilon of the noise that the release check found, null if not looked at"""
    lower_bounds: list[Bound]
    """lower bounds from canaries, the one that decides first; empty if not looked at"""
    findings: list[dict[str, Cell]]
    """rows of the release check"""
    sentence: str
    """the three in a sentence"""
    pyramid: list[Level]
    """a line for each item of the pyramid"""


class Revealed(Strict):
    """After how many rounds an attack reveals clients from sums."""

    attack: str
    """its name"""
    clients: int
    """clients with a result"""
    revealed: int
    """clients of whom its 95 % interval became narrower than what is declared as sensitive"""
    earliest: int
    """number of rounds after which the first of them was revealed"""
    mean: float
    """mean over those"""


class Sums(Strict):
    """What sums over rounds reveal of single clients."""

    sentence: str
    """for how many rounds clients are hidden, in a sentence"""
    clients: int
    """clients that took part in sums"""
    rounds: int
    """recorded rounds"""
    rank: int
    """rank of the participation; with as many as clients, all are determined"""
    determined: int
    """clients of whom every additive statistic follows from exact sums"""
    earliest: int | None
    """number of rounds after which the first of them is determined, null for none"""
    measured: list[Revealed]
    """attacks that revealed clients"""
    batched: str
    """what it would change if the same clients always took part together"""
    assumptions: list[str]
    """what the numbers assume"""


class Topic(Strict):
    """Topic of an impact assessment."""

    topic: str
    """its name"""
    declared: str
    """what the controller declares; `open` if nothing"""


class RiskRow(Strict):
    """Risk of one question: what was measured, and how the controller judges it."""

    infers: str
    """what the server infers, in words"""
    measured: str
    """what was measured, in everyday words; that it was not measured otherwise"""
    before: str
    """severity and likelihood without the measures; `open` if not declared"""
    after: str
    """severity and likelihood with the measures; `open` if not declared"""


class Assessment(Strict):
    """What an impact assessment needs, as far as the controller declares it."""

    topics: list[Topic]
    """topics, from roles to the next review"""
    risks: list[RiskRow]
    """risks of the measured questions, and of others of which the controller declares one"""
    measures: list[str]
    """planned measures with owner and date"""
    advice: str
    """advice of the data-protection officer, who and when; `open` if none is declared"""


class NotMeasured(Strict):
    """A question without a result."""

    question: str
    """families of the attacks on it, or the class of attack"""
    infers: str
    """what would be inferred, in words"""
    reasons: list[str]
    """why it was not measured: the most frequent reason of the attacks of each family"""
    summary: str
    """why the attack that lacks least did not measure it, in plain words"""
    names: Names
    """names in public taxonomies, with the letters of its attacks"""


class DoesNotApply(Strict):
    """A question that cannot be asked of the recorded system."""

    question: str
    """families of the attacks on it, or the class of attack"""
    infers: str
    """what would be inferred, in words"""
    reason: str
    """why it does not apply"""


class NotRun(Strict):
    """Attacks that could not run for one reason."""

    question: str
    """family of the attacks"""
    attacks: list[str]
    """their names"""
    reason: str
    """what they lacked"""


class OtherServer(Strict):
    """What a server may do besides averaging, and the recording does not declare."""

    deviation: str
    """class in the package server"""
    does: str
    """what the server does"""
    letter: str | None
    """threat model, A to H, of the USENIX Security 2025 systematisation"""


class NotTried(Strict):
    """What this audit did not try."""

    not_measured: list[NotMeasured]
    """every question that applies and has no result"""
    could_not_run: list[NotRun]
    """attacks on the measured questions that could not run"""
    other_questions: list[NotRun]
    """attacks on other questions, none of which the recording fits"""
    without_attack: dict[str, str]
    """known classes of attack of which this version has none"""
    does_not_apply: list[DoesNotApply]
    """questions that cannot be asked of the recorded system"""
    deviations: list[OtherServer]
    """what a server may do besides averaging, and the recording does not declare"""


class At(Strict):
    """Largest leak at one value of a defence, over all other settings."""

    value: Cell
    """value of the defence's setting"""
    table: str
    """table in docs/results that it stands in; `this recording` for a defence tried on it"""
    attack: str
    """best attack there"""
    result: Interval
    """its mean"""
    n: int
    """number of clients"""
    baseline: str | None
    """best baseline in the same setting, null if there is none"""
    baseline_reads: bool
    """whether it reads the update, so that noise makes it worse too"""
    baseline_result: Interval | None
    """its mean"""
    gain: float
    """share of the way from the best of the baseline and guessing to certainty"""
    signal: float | None = None
    """cosine of the round's mean update with and without the defence, null for a trained one"""


class Effect(Strict):
    """Measured effect of a defence, on this recording, or on other data from the published results of this project."""

    question: str
    """family of attacks"""
    infers: str
    """what the server infers, in words"""
    data: str
    """name of the data"""
    here: bool
    """whether the defence was tried on this recording"""
    defence: str
    """what varies, e.g. epsilon of local privacy"""
    note: str
    """what the defence covers, empty where the table does not say it"""
    metric: str
    """metric"""
    cells: list[At]
    """largest leak by value"""


class Lowering(Strict):
    """What would lower the leak."""

    sentence: str
    """whether an effect was measured, and where"""
    effects: list[Effect]
    """effects, those on this recording first"""


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
