"""A site's policy: what may leave, and what a finding does."""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import yaml

from fedleak_guard.plain_message import MOST_EXAMPLES
from fedleak_guard.policy_yaml import PolicyLoader
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import read_bounded
from fedleak_recorder.lint.finding import Kind
from fedleak_recorder.plain_fields import option, read_fields
from fedleak_recorder.plain_values import strange_value

Action = Literal["refuse", "noise", "log"]
_LARGEST = 2**20
"""Bytes of a policy."""
BITS = {
    **{f"{kind}{bits}": bits for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "bool": 1,
    "float16": 16,
    "bfloat16": 16,
    "float32": 32,
    "float64": 64,
    "complex64": 64,
    "complex128": 128,
}
"""Types of numbers that can leave, and the bits of a number of each."""
_WILDCARDS = frozenset("*?[")
_WAY_OUT = "Restore the policy; until then nothing leaves the site."
_KEYS = "See the table of keys in docs/site/guard-reference.md, or `fedleak-guard schema`."


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
        # -1 stands for a dimension of any size.
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
class LintLimits:
    """What may leave of that which looks like more than an update."""

    minimum: int = option("smallest number of people that a count or a statistic may be of", default=5, low=1)
    allowed: tuple[Kind, ...] = option("kinds of findings that may leave", default=())


@dataclass(frozen=True, kw_only=True)
class TreeLimits:
    """Limits on the trees in a message, whose leaves count the rows of the site."""

    smallest_leaf: int | None = option("smallest number of the site's rows in a leaf", default=None, low=1)
    smallest_class: int | None = option(
        "smallest number of the site's positive rows in a leaf, and of its negative ones", default=None, low=1
    )
    deepest: int | None = option("largest number of splits between the root and a leaf", default=None, low=0)
    most_trees: int | None = option("largest number of new trees in a message", default=None, low=1)
    threshold_digits: int | None = option("decimal places to which each threshold is rounded", default=None, low=0)

    @property
    def counts_rows(self) -> bool:
        """Whether a limit is on the site's rows, which the guard then needs."""
        return self.smallest_leaf is not None or self.smallest_class is not None


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
    lint: LintLimits = option("what may leave of that which looks like more than an update", default=LintLimits())
    trees: TreeLimits | None = option("what trees may leave; without it, none", default=None)
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
        # Frozen, and a mapping cannot be a default: an absent section is an empty one.
        if self.findings is None:
            object.__setattr__(self, "findings", {})
        if self.limits is None:
            object.__setattr__(self, "limits", {})

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
        value = yaml.load(content.decode("utf-8"), Loader=PolicyLoader)
    # Not all errors of PyYAML are its own: of `!!int ''`, `!!bool x` and a number of 5,000 digits they are Python's.
    except (yaml.YAMLError, ValueError, LookupError, OverflowError, AttributeError, RecursionError) as error:
        problem_in_file = f"{' '.join(str(error).split())} in {path}"
        raise InputError(expected="a policy in YAML", found=problem_in_file, way_out=_WAY_OUT) from None
    # Dates, sets and binary data are values of YAML, and none of a policy.
    problem = strange_value(value)
    require(problem is None, "plain values in the policy", f"{problem} in {path}", _WAY_OUT)
    policy = read_fields(Policy, value, "the policy", way_out=_KEYS)
    # Checks import this module, and which of them there are is not asked before.
    from fedleak_guard.policy_check import check_policy

    check_policy(policy)
    object.__setattr__(policy, "source_hash", hashlib.sha256(content).hexdigest())
    return policy
