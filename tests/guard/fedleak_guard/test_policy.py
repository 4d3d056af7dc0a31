"""Policies: what is wrong with one is said in one line, and nothing is guessed."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fedleak_guard.known_checks import known_checks
from fedleak_guard.policy import Budget, Policy, read_policy
from fedleak_guard.policy_check import fixed_size
from fedleak_guard.policy_yaml import PolicyLoader
from fedleak_recorder.errors import InputError
from fedleak_recorder.fields_schema import schema_of
from tests.guard_toys import write_policy
from tests.places import ROOT


def test_defaults_and_the_first_rule_that_fits(tmp_path: Path) -> None:
    policy = read_policy(write_policy(tmp_path))
    assert policy.metrics.min_cell == 10
    assert policy.rule("bias") == policy.tensors[1]
    assert policy.rule("other") is None
    assert policy.action("own-records", "refuse") == "refuse"
    assert len(policy.source_hash) == 64


def test_numbers_without_a_dot_are_numbers(tmp_path: Path) -> None:
    policy = read_policy(write_policy(tmp_path, "budget: {delta: 1e-6}\n"))
    assert policy.budget.delta == 1e-6


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("updates: {}\n", ["updates", "Did you mean update?"]),
        ("update: {max_nrom: 1}\n", ["max_nrom", "Did you mean max_norm?"]),
        ("update: {max_norm: 0}\n", ["above 0", "update.max_norm"]),
        ("update: {max_norm: .nan}\n", ["nan"]),
        ("update: {min_examples: 1.5}\n", ["a whole number", "1.5"]),
        ("update: {min_examples: true}\n", ["a whole number", "True"]),
        ("update: {max_changed: 2}\n", ["at most 1"]),
        ("update: [1]\n", ["keys and values"]),
        ("metrics: {names: loss}\n", ["a list as the policy.metrics.names"]),
        ("findings: {own-record: log}\n", ["own-record", "Did you mean own-records"]),
        ("findings: {own-records: allow}\n", ["one of refuse, noise, log"]),
        ("findings: {finite-numbers: log}\n", ["Give one of refuse"]),
        ("findings: {own-records: noise}\n", ["no section noise"]),
        ("limits: {update-norm: 3}\n", ["limits of received-rows, own-adapter-words", "update-norm"]),
        ("required: [nothing]\n", ["the name of a check"]),
        ("privacy: {noise: 1}\n", ["the key clip"]),
        ("update: {min_changed: 0.5, max_changed: 0.1}\n", ["min_changed 0.5 with update.max_changed 0.1"]),
        ("budget: {job_epsilon: 3}\n", ["job_epsilon", "no declared or added noise"]),
        ("budget: {job_rounds: 10, site_rounds: 5}\n", ["job_rounds 10 with budget.site_rounds 5"]),
        ("received: {frozen: [a]}\n", ["frozen_hashes"]),
        ("received: {first_round: [abc]}\n", ["a SHA-256"]),
        ("update: {max_norm: 1}\nupdate: {max_norm: 2}\n", ["'update' twice"]),
        ("update: {max_norm: [\n", ["a policy in YAML"]),
        ("update: {max_norm: " + "9" * 5000 + "}\n", ["integer string"]),
        ("update: {max_norm: !!int x}\n", ["a policy in YAML"]),
        ("update: &a {max_norm: 1}\nbudget: {<<: *a}\n", ["a merge key (<<)"]),
        ("update: {[1]: 1}\n", ["a key that is no text"]),
        ("own: " + "[" * 3000 + "\n", ["nested too deeply"]),
        ("required: [declared-noise]\n", ["privacy.noise, without which required of declared-noise has no effect"]),
        ("privacy: {clip: 1}\nrequired: [release-check]\n", ["Add privacy.noise, or remove release-check"]),
        ("required: [declared-clip]\n", ["privacy, without which"]),
        ("required: [update-norm]\n", ["update.max_norm, without which"]),
        ("required: [received-hash]\n", ["received.first_round, without which"]),
        ("required: [changed-share]\n", ["update.max_changed, without which"]),
        ("required: [example-count]\n", ["update.min_examples, without which"]),
        ("received: {record: true}\nrequired: [received-model]\n", ["received.thresholds, without which"]),
        ("findings: {update-norm: log}\n", ["without which findings of update-norm has no effect"]),
        ("limits: {release-check: 2}\n", ["without which limits of release-check has no effect"]),
    ],
)
def test_a_wrong_policy_is_refused_in_one_line(tmp_path: Path, more: str, words: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        read_policy(write_policy(tmp_path, more))
    assert all(word in str(refused.value) for word in words), refused.value
    assert "\n" not in str(refused.value)


def test_a_type_that_no_number_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("format: 1\nevidence: e\ntensors: [{name: a, dtype: float}]\n")
    with pytest.raises(InputError, match="a type of numbers among"):
        read_policy(path)


@pytest.mark.integration
def test_many_keys_take_a_time_that_grows_with_their_number(tmp_path: Path) -> None:
    """The keys of one mapping are compared a bounded number of times each."""
    compared = 0

    class Key(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    loader = PolicyLoader("")
    pairs = []
    for number in range(5000):
        key = yaml.ScalarNode("tag:yaml.org,2002:str", Key(f"key {number}"))
        pairs.append((key, yaml.ScalarNode("tag:yaml.org,2002:str", "value")))
    made = loader.construct_mapping(yaml.MappingNode("tag:yaml.org,2002:map", pairs))
    assert len(made) == 5000
    assert compared < 100_000
    path = tmp_path / "policy.yaml"
    path.write_text("".join(f"k{number}: 1\n" for number in range(20_000)))
    with pytest.raises(InputError, match="a key of the policy"):
        read_policy(path)


def test_noise_that_is_larger_than_the_norm_allowed_is_refused(tmp_path: Path) -> None:
    whole = "format: 1\nevidence: e\ntensors: [{name: a, shape: [100, 100]}]\nprivacy: {clip: 1, noise: 1}\n"
    path = tmp_path / "policy.yaml"
    path.write_text(whole + "update: {max_norm: 120}\n")
    assert fixed_size(read_policy(path)) == 10_000
    path.write_text(whole + "update: {max_norm: 50}\n")
    with pytest.raises(InputError, match="noise of norm"):
        read_policy(path)


def test_a_policy_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing leaves"):
        read_policy(tmp_path / "none.yaml")
    (tmp_path / "policy.yaml").write_bytes(b"\xff\x00")
    with pytest.raises(InputError, match="YAML"):
        read_policy(tmp_path / "policy.yaml")


def keys(schema: dict[str, Any], prefix: str = "") -> list[str]:
    """All keys of a policy, those of sections as ``section.key``."""
    found = []
    for name, one in schema.get("properties", {}).items():
        found.append(prefix + name)
        for part in (one, one.get("items", {}), *one.get("anyOf", ())):
            found += keys(part, f"{prefix}{name}.")
    return found


def descriptions(schema: Any) -> list[str]:
    """All descriptions in a schema."""
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    own = [schema["description"]] if isinstance(schema, dict) and isinstance(schema.get("description"), str) else []
    return own + [text for part in parts for text in descriptions(part)]


def test_the_schema_has_types_limits_and_defaults() -> None:
    schema = schema_of(Budget)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["delta"]["exclusiveMinimum"] == 0
    assert schema["properties"]["delta"]["default"] == 1e-5
    assert schema["properties"]["job_rounds"]["anyOf"][0] == {"type": "integer", "minimum": 1}
    assert schema_of(Policy)["required"] == ["format", "evidence", "tensors"]


def test_the_page_has_every_key_with_its_sentence() -> None:
    page = (ROOT / "docs/site/guard-reference.md").read_text(encoding="utf-8")
    assert [key for key in keys(schema_of(Policy)) if f"`{key}`" not in page] == []
    assert [text for text in descriptions(schema_of(Policy)) if text not in page] == []
    assert [name for name, kind in known_checks().items() if f"| `{name}` | {kind.text} |" not in page] == []
