"""A site's policy: what may leave, and what a finding does."""

import functools
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import yaml

from fedleak_guard.plain_message import MOST_EXAMPLES
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import read_bounded
from fedleak_recorder.nearest import did_you_mean
from fedleak_recorder.plain_fields import option, read_fields
from fedleak_recorder.plain_values import strange_value

Action = Literal["refuse", "noise", "log"]
_LARGEST = 2**20
"""Bytes of a policy."""
_DEEPEST = 32
"""Levels of nesting of a policy, whose parser is quadratic in them."""
BITS = {
    **{f"{kind}{bits}": bits for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{"bool": 1, "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "complex64": 64, "complex128": 128},
}
"""Types of numbers that can leave, and the bits of a number of each."""
_WILDCARDS = frozenset("*?[")
_WAY_OUT = "Restore the policy; until then nothing leaves the site."
_KEYS = "See the table of keys in docs/site/guard.md, or `fedleak-guard schema`."
_WITHOUT_SIGN = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
"""Numbers such as 1e-5 and 1.5e3, which YAML 1.1 reads as texts."""


def has_wildcards(name: str) -> bool:
    """Whether a name of a policy fits other names too."""
    return not _WILDCARDS.isdisjoint(name)


@dataclass(frozen=True, kw_only=True)
class TensorRule:
    """Tensors that may leave."""

    name: str = option("name of the tensors; * and ? stand for any characters")
    shape: tuple[int, ...] | None = option(
        "their shape; -1 for any size of a dimension; any shape if absent", default=None
    )
    dtype: str | None = option("their type, such as float32; any floating-point type if absent", default=None)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a shape is that of the rule."""
        if self.shape is None:
            return True
        if len(self.shape) != len(shape):
            return False
        return all(wanted in (-1, size) for wanted, size in zip(self.shape, shape, strict=True))

    @property
    def has_wildcards(self) -> bool:
        """Whether the name fits other names too."""
        return has_wildcards(self.name)


@dataclass(frozen=True, kw_only=True)
class UpdateLimits:
    """Limits on the update as a whole, over its floating-point tensors."""

    max_norm: float | None = option("largest L2 norm of the update", default=None, above=0)
    min_changed: float | None = option("smallest share of changed numbers", default=None, above=0, high=1)
    max_changed: float | None = option("largest share of changed numbers", default=None, above=0, high=1)
    min_examples: int | None = option(
        "smallest number of training examples that the client reports", default=None, low=1
    )
    max_examples: int | None = option(
        "largest number of training examples that the client reports", default=None, low=1, high=MOST_EXAMPLES
    )


@dataclass(frozen=True, kw_only=True)
class ReceivedModels:
    """Models that the site accepts, by SHA-256 as `fedleak-guard hash` prints it."""

    first_round: tuple[str, ...] | None = option("hashes of the whole model in a job's first round", default=None)
    frozen: tuple[str, ...] = option("names of tensors that no round changes; * and ? as above", default=())
    frozen_hashes: tuple[str, ...] = option("hashes of these tensors, in every round", default=())
    thresholds: str | None = option("file of thresholds that `fedleak-guard calibrate` made", default=None)
    record: bool = option("whether the log gets the statistics of received models, to calibrate from", default=False)

    @property
    def is_compared(self) -> bool:
        """Whether received models are compared with those of earlier rounds."""
        return self.record or self.thresholds is not None


@dataclass(frozen=True, kw_only=True)
class OwnData:
    """What the site has itself, for the attacks on its own message; it never leaves."""

    data: str | None = option(".npz file with the client's records, as the network gets them, and labels", default=None)
    network: str | None = option("function that makes the PyTorch network, as module:name", default=None)
    algorithm: str | None = option(
        "function that makes the client's algorithm of fedleak, as module:name", default=None
    )


@dataclass(frozen=True, kw_only=True)
class MetricLimits:
    """Limits on numbers that are sent next to the update, or alone."""

    names: tuple[str, ...] = option("names that may leave; * and ? as above", default=())
    counts: tuple[str, ...] = option("names of counts of people or examples, among these", default=())
    max_values: int = option("largest number of values in a message", default=16, low=0)
    min_cell: int = option("smallest count that may leave, apart from 0", default=10, low=1)
    max_bits: float = option("largest number of bits that a message's metrics can carry", default=1280.0, above=0)


@dataclass(frozen=True, kw_only=True)
class DeclaredPrivacy:
    """What the client declares to do to its update before it sends it."""

    clip: float = option("L2 norm to which the update is clipped", above=0)
    noise: float | None = option("standard deviation of the Gaussian noise on each number", default=None, above=0)
    neighbours: Literal["replace", "add"] = option(
        "replace: a client's data replaced by any other, up to 2 clip apart; add: with and without, up to clip",
        default="replace",
    )
    tensors: tuple[str, ...] = option("names of the tensors that are clipped and noised together", default=("*",))


class BudgetLimits(NamedTuple):
    """Most that leaves in a job, or in all of them; None for no limit."""

    rounds: int | None
    epsilon: float | None
    messages: int | None


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Most that leaves, counted in the log of the site."""

    job_rounds: int | None = option("messages of one job that have tensors", default=None, low=1)
    job_epsilon: float | None = option("epsilon of one job", default=None, above=0)
    site_rounds: int | None = option("messages of all jobs that have tensors", default=None, low=1)
    site_epsilon: float | None = option("epsilon of all jobs", default=None, above=0)
    job_messages: int | None = option("messages of one job, those of metrics alone included", default=None, low=1)
    site_messages: int | None = option("messages of all jobs, those of metrics alone included", default=None, low=1)
    delta: float = option("delta of epsilon", default=1e-5, above=0, high=0.5)

    @property
    def job(self) -> BudgetLimits:
        """The limits of one job."""
        return BudgetLimits(self.job_rounds, self.job_epsilon, self.job_messages)

    @property
    def site(self) -> BudgetLimits:
        """The limits of all jobs together."""
        return BudgetLimits(self.site_rounds, self.site_epsilon, self.site_messages)


@dataclass(frozen=True, kw_only=True)
class AddedNoise:
    """Noise that the guard adds where a finding's action is noise."""

    clip: float = option("L2 norm to which the guard clips the update first", above=0)
    scale: float = option("standard deviation of the Gaussian noise that it adds to each number", above=0)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A site's policy, as its YAML file holds it."""

    format: int = option("version of the format", low=1, high=1)
    evidence: str = option("folder of the log, of egress.json and of attack_results.json")
    tensors: tuple[TensorRule, ...] = option("tensors that may leave; the first rule whose name fits decides")
    update: UpdateLimits = option("limits on the update", default=UpdateLimits())
    received: ReceivedModels = option("models that the site accepts", default=ReceivedModels())
    own: OwnData = option("what the site has itself, for the checks that need it; it never leaves", default=OwnData())
    metrics: MetricLimits = option("limits on metrics", default=MetricLimits())
    privacy: DeclaredPrivacy | None = option("declared clip and noise, which are checked", default=None)
    budget: Budget = option("budget", default=Budget())
    noise: AddedNoise | None = option("noise that the guard adds", default=None)
    findings: Mapping[str, Action] = option(
        "by check, what a finding does: refuse, noise or log; otherwise as the check says", default=None
    )
    limits: Mapping[str, float] = option("by check, the largest value that is no finding", default=None)
    required: tuple[str, ...] = option("checks without which nothing leaves", default=())
    source_hash: ClassVar[str] = ""
    """SHA-256 of the file that it was read from."""

    def __post_init__(self) -> None:
        for name, given in (("findings", self.findings), ("limits", self.limits)):
            if given is None:
                object.__setattr__(self, name, {})

    def rule(self, name: str) -> TensorRule | None:
        """The first rule whose name fits a tensor; None if the tensor may not leave."""
        return next((rule for rule in self.tensors if fnmatchcase(name, rule.name)), None)

    def names(self, name: str) -> bool:
        """Whether the rule of a tensor has its whole name, without wildcards."""
        rule = self.rule(name)
        return rule is not None and rule.name == name and not rule.has_wildcards

    def fixes_shape(self, name: str) -> bool:
        """Whether the rule of a tensor has its whole shape."""
        rule = self.rule(name)
        return rule is not None and rule.shape is not None and -1 not in rule.shape

    def action(self, check: str, default: Action) -> Action:
        """What a finding of a check does."""
        return self.findings.get(check, default)


def read_policy(path: str | Path) -> Policy:
    """The policy in a file.

    Raises:
        InputError: it is missing, damaged or too large, has an unknown key or a wrong value, names an unknown check, or
            has limits that exclude each other.
    """
    return _policy_of(read_bounded(Path(path), most=_LARGEST, way_out=_WAY_OUT), str(path))


@functools.lru_cache(maxsize=8)
def _policy_of(content: bytes, path: str) -> Policy:
    """The policy in the content of a file."""
    try:
        value = yaml.load(content.decode("utf-8"), Loader=_PolicyLoader)
    # Not all errors of PyYAML are its own: of `!!int ''`, `!!bool x` and a number of 5,000 digits they are Python's.
    except (yaml.YAMLError, ValueError, LookupError, OverflowError, AttributeError, RecursionError) as error:
        found = f"{' '.join(str(error).split())} in {path}"
        raise InputError(expected="a policy in YAML", found=found, way_out=_WAY_OUT) from None
    problem = strange_value(value)
    require(problem is None, "plain values in the policy", f"{problem} in {path}", _WAY_OUT)
    policy = read_fields(Policy, value, "the policy", way_out=_KEYS)
    check_policy(policy)
    object.__setattr__(policy, "source_hash", hashlib.sha256(content).hexdigest())
    return policy


def check_policy(policy: Policy) -> None:
    """Refuses limits that exclude each other, and names of checks that do not exist.

    Raises:
        InputError: nothing could ever leave under the policy, or it says something that has no effect.
    """
    from fedleak_guard.known_checks import known_checks

    def excluded(wrong: object, one: str, other: str) -> None:
        require(not wrong, "limits that a message can meet", f"{one} with {other}", "Change one of the two.")

    checks = known_checks()
    for name in (*policy.findings, *policy.limits, *policy.required):
        way_out = did_you_mean(name, checks, "See `fedleak-guard checks`.")
        require(name in checks, "the name of a check", repr(name)[:80], way_out)
    for name in policy.limits:
        limited = ", ".join(one for one, kind in checks.items() if kind.limited)
        require(checks[name].limited, f"limits of {limited}", name, "Other checks have keys of their own.")
    _check_effects(policy)
    require(policy.tensors or policy.metrics.names, "tensors or metrics that may leave", "none", "Add a rule.")
    for rule in policy.tensors:
        known_type = rule.dtype is None or rule.dtype in BITS
        require(known_type, f"a type of numbers among {', '.join(BITS)}", rule.dtype, "Correct tensors.dtype.")
    update, budget = policy.update, policy.budget
    low, high = update.min_changed or 0, update.max_changed
    excluded(high is not None and low > high, f"update.min_changed {low}", f"update.max_changed {high}")
    for name, action in policy.findings.items():
        allowed = checks[name].actions
        way_out = f"Give one of {', '.join(allowed)}."
        require(action in allowed, f"an action that a finding of {name} can have", action, way_out)
        excluded(action == "noise" and policy.noise is None, f"findings.{name} noise", "no section noise")
    for name, epsilon in (("job", budget.job_epsilon), ("site", budget.site_epsilon)):
        noisy = policy.noise is not None or (policy.privacy is not None and policy.privacy.noise is not None)
        excluded(epsilon is not None and not noisy, f"budget.{name}_epsilon {epsilon}", "no declared or added noise")
    limits = ("rounds", budget.job_rounds, budget.site_rounds), ("epsilon", budget.job_epsilon, budget.site_epsilon)
    for unit, job, site in limits:
        most = f"budget.site_{unit} {site}"
        excluded(job is not None and site is not None and job > site, f"budget.job_{unit} {job}", most)
    frozen = policy.received
    excluded(bool(frozen.frozen) != bool(frozen.frozen_hashes), "received.frozen", "received.frozen_hashes, one empty")
    for text in (*(frozen.first_round or ()), *frozen.frozen_hashes):
        hexadecimal = len(text) == 64 and all(digit in "0123456789abcdef" for digit in text)
        require(hexadecimal, "a SHA-256 of 64 digits", repr(text)[:80], "`fedleak-guard hash FILE` prints it.")
    numbers, noise = fixed_size(policy), policy.privacy.noise if policy.privacy is not None else None
    if numbers and noise and update.max_norm is not None:
        least = noise * math.sqrt(max(numbers - 7 * math.sqrt(2 * numbers), 0))
        excluded(
            least > update.max_norm, f"update.max_norm {update.max_norm}", f"noise of norm {least:.3g} by privacy.noise"
        )


def _check_effects(policy: Policy) -> None:
    """Refuses what is said of a check that measures nothing under the policy."""
    from fedleak_guard.known_checks import known_checks

    checks = known_checks()
    for section, names in (("findings", policy.findings), ("limits", policy.limits), ("required", policy.required)):
        for name in names:
            lacking = checks[name].lacking(policy)
            way_out = f"Add {lacking}, or remove {name} from {section}."
            require(not lacking, f"{lacking}, without which {section} of {name} has no effect", "none", way_out)


def fixed_size(policy: Policy) -> int | None:
    """Number of numbers in a message, if the policy names each tensor with its whole shape; else None."""
    rules = policy.tensors
    if any(rule.has_wildcards or rule.shape is None or -1 in rule.shape for rule in rules):
        return None
    return sum(math.prod(rule.shape or ()) for rule in rules)


class _PolicyLoader(yaml.SafeLoader):
    """Safe loader that refuses keys that stand twice, merge keys, and values that are nested too deeply.

    Of a key that stands twice YAML would silently take the last one.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next value, which must not be nested too deeply."""
        self._depth += 1
        if self._depth > _DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "values that are nested too deeply", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuses a merge key, which would be replaced here by the keys that it names, and theirs in turn."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, "a merge key (<<)", key.start_mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys stand once."""
        seen = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key that is no text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key.value[:60]!r} twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_PolicyLoader.add_implicit_resolver("tag:yaml.org,2002:float", _WITHOUT_SIGN, list("-+0123456789"))
