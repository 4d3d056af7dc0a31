"""YAML of a stranger is refused before it grows: deep, repeated, merged, and values that Python cannot make."""

import resource

import pytest

from fedleak.core.bounded_yaml import load_yaml

MERGES = "a0: &a0 {k: 1}\n" + "".join(
    f"a{number}: &a{number} {{<<: [{', '.join([f'*a{number - 1}'] * 10)}]}}\n" for number in range(1, 10)
)
"""599 bytes that stand for 10^9 keys."""
ALIASES = "a0: &a0 [x, x]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 12)
)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(MERGES, "with the repetitions of aliases", id="merge keys"),
        pytest.param(ALIASES, "with the repetitions of aliases", id="aliases"),
        pytest.param("a: &a [" + "1," * 10**4 + "]\nb: [" + "*a," * 10**4 + "]", "repetitions", id="wide"),
        pytest.param("a: " + "[" * 3000, "too deeply", id="brackets"),
        pytest.param("{a: " * 3000, "too deeply", id="braces"),
        pytest.param("- " * 3000, "too deeply", id="dashes"),
        pytest.param("? " * 3000, "too deeply", id="keys of keys"),
        pytest.param("\n".join(" " * depth + "a:" for depth in range(2000)), "too deeply", id="lines"),
        pytest.param("&a [*a]", "hold themselves", id="list in itself"),
        pytest.param("a: &a {b: {c: *a}}", "hold themselves", id="mapping in itself"),
        pytest.param("a: " + "1:" * 10**5 + "1", "base 60", id="base 60"),
        pytest.param("a: " + "1:" * 400 + "1.5", "base 60", id="fraction of base 60"),
        pytest.param("!!bool x", "tag", id="no boolean"),
        pytest.param("!!int ''", "tag", id="no number"),
        pytest.param('"\\UFFFFFFFF"', "tag", id="no character"),
        pytest.param('"\\ud800"', "half a character in '.ud800'.* line 1", id="half a character"),
        pytest.param('{a: {"b\\udfff": 1}}', "half a character", id="half a character in a key"),
        pytest.param('!!float "\\ud800"', "half a character", id="half a character in a number"),
        pytest.param("a: " + "1" * 5000, "digits", id="long number"),
        pytest.param("!!python/object/apply:os.system [x]", "constructor", id="code"),
    ],
)
def test_a_file_that_grows_is_refused_at_once(text: str, said: str, plain: bool) -> None:
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with pytest.raises(ValueError, match=said):
        load_yaml(text, plain=plain)
    # Time of the processor, not of the wall; most cases take a hundredth of it.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - begin < 5


def test_a_table_may_merge_and_a_stranger_may_not() -> None:
    text = "a: &a {x: 1}\nb: {<<: *a, y: 2}"
    assert load_yaml(text) == {"a": {"x": 1}, "b": {"x": 1, "y": 2}}
    for merged in (text, "!!merge k: {a: 1}", "{<<: {a: 1}}"):
        with pytest.raises(ValueError, match="a merge key"):
            load_yaml(merged, plain=True)


def test_plain_values_have_each_key_once_and_keep_dates_as_texts() -> None:
    assert load_yaml("{a: 2026-11-27, '<<': 1, b: &b [1], c: *b}", plain=True) == {
        **{"a": "2026-11-27", "<<": 1, "b": [1], "c": [1]}
    }
    with pytest.raises(ValueError, match="'a' twice in line 2"):
        load_yaml("x:\n  {a: 1, a: 1}", plain=True)
