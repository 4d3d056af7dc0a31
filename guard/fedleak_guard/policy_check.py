"""Checks of a policy as a whole: its limits do not exclude each other, and nothing in it is without effect."""

import math
import re

from fedleak_guard.known_checks import known_checks
from fedleak_guard.policy import BITS, Policy, TreeLimits
from fedleak_recorder.errors import require
from fedleak_recorder.nearest import did_you_mean


def check_policy(policy: Policy) -> None:
    """Refuses limits that exclude each other, and names of checks that do not exist.

    Raises:
        InputError: nothing could ever leave under the policy, or it says something that has no effect.
    """
    _check_names(policy)
    _check_effects(policy)
    require(policy.tensors or policy.metrics.names, "tensors or metrics that may leave", "none", "Add a rule.")
    for rule in policy.tensors:
        is_known_type = rule.dtype is None or rule.dtype in BITS
        require(is_known_type, f"a type of numbers among {', '.join(BITS)}", rule.dtype, "Correct tensors.dtype.")
    low = policy.update.min_changed or 0
    high = policy.update.max_changed
    _exclude(high is not None and low > high, f"update.min_changed {low}", f"update.max_changed {high}")
    _check_actions(policy)
    _check_budget(policy)
    _check_hashes(policy)
    _check_norm(policy)
    _check_trees(policy)


def _exclude(is_excluded: bool, first_limit: str, second_limit: str) -> None:
    """Refuses two limits that no message can meet."""
    require(
        not is_excluded,
        "limits that a message can meet",
        f"{first_limit} with {second_limit}",
        "Change one of the two.",
    )


def _check_names(policy: Policy) -> None:
    """Refuses names of checks that do not exist, and limits of checks that have keys of their own."""
    checks = known_checks()
    for name in (*policy.findings, *policy.limits, *policy.required):
        way_out = did_you_mean(name, checks, "See `fedleak-guard checks`.")
        require(name in checks, "the name of a check", repr(name)[:80], way_out)
    limited = ", ".join(name for name, kind in checks.items() if kind.limited)
    for name in policy.limits:
        require(checks[name].limited, f"limits of {limited}", name, "Other checks have keys of their own.")


def _check_effects(policy: Policy) -> None:
    """Refuses what is said of a check that measures nothing under the policy."""
    checks = known_checks()
    for section, names in (("findings", policy.findings), ("limits", policy.limits), ("required", policy.required)):
        for name in names:
            lacking = checks[name].lacking(policy)
            way_out = f"Add {lacking}, or remove {name} from {section}."
            require(not lacking, f"{lacking}, without which {section} of {name} has no effect", "none", way_out)


def _check_actions(policy: Policy) -> None:
    """Refuses an action that a finding cannot have, and noise without its clip and scale."""
    checks = known_checks()
    for name, action in policy.findings.items():
        allowed = checks[name].actions
        way_out = f"Give one of {', '.join(allowed)}."
        require(action in allowed, f"an action that a finding of {name} can have", action, way_out)
        _exclude(action == "noise" and policy.noise is None, f"findings.{name} noise", "no section noise")


def _check_budget(policy: Policy) -> None:
    """Refuses an epsilon that nothing keeps, and a job's budget above that of the site."""
    budget = policy.budget
    is_noised = policy.noise is not None or (policy.privacy is not None and policy.privacy.noise is not None)
    for name, epsilon in (("job", budget.job_epsilon), ("site", budget.site_epsilon)):
        # Without noise epsilon is infinite.
        is_lost = epsilon is not None and not is_noised
        _exclude(is_lost, f"budget.{name}_epsilon {epsilon}", "no declared or added noise")
    limits = (
        ("rounds", budget.job_rounds, budget.site_rounds),
        ("epsilon", budget.job_epsilon, budget.site_epsilon),
    )
    for unit, job, site in limits:
        is_above = job is not None and site is not None and job > site
        _exclude(is_above, f"budget.job_{unit} {job}", f"budget.site_{unit} {site}")


def _check_hashes(policy: Policy) -> None:
    """Refuses frozen tensors without hashes, and texts that are no hashes."""
    received = policy.received
    is_half = bool(received.frozen) != bool(received.frozen_hashes)
    _exclude(is_half, "received.frozen", "received.frozen_hashes, one empty")
    for text in (*(received.first_round or ()), *received.frozen_hashes):
        is_hash = re.fullmatch("[0-9a-f]{64}", text) is not None
        require(is_hash, "a SHA-256 of 64 digits", repr(text)[:80], "`fedleak-guard hash FILE` prints it.")


def _check_norm(policy: Policy) -> None:
    """Refuses a largest norm that the declared noise alone exceeds."""
    numbers = fixed_size(policy)
    noise = None
    if policy.privacy is not None:
        noise = policy.privacy.noise
    most = policy.update.max_norm
    if not numbers or not noise or most is None:
        return
    # The squared norm over the variance is chi-squared: mean d, standard deviation sqrt(2 d), 7 of which below the mean
    # it practically never is.
    least = noise * math.sqrt(max(numbers - 7 * math.sqrt(2 * numbers), 0))
    _exclude(least > most, f"update.max_norm {most}", f"noise of norm {least:.3g} by privacy.noise")


def _check_trees(policy: Policy) -> None:
    """Refuses a section about trees that says nothing, or under which no trees can leave."""
    if policy.trees is None:
        return
    require(
        policy.trees != TreeLimits(),
        "limits in the section trees",
        "none",
        "Add smallest_leaf, say, or remove the section.",
    )
    require(
        any(rule.dtype == "uint8" for rule in policy.tensors),
        "a rule for the bytes of trees, under the section trees",
        "none with dtype uint8",
        "Add {name: ..., dtype: uint8} to tensors, with the name under which the model is sent.",
    )


def fixed_size(policy: Policy) -> int | None:
    """Number of numbers in a message, if the policy names each tensor with its whole shape; else None."""
    rules = policy.tensors
    if any(rule.has_wildcards or rule.shape is None or -1 in rule.shape for rule in rules):
        return None
    return sum(math.prod(rule.shape or ()) for rule in rules)
