"""Reader of models of XGBoost, in JSON or UBJ: trees of one score with numeric splits, and nothing else.

References:
    XGBoost's schema of models, https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.trees.bounded_json import WAY_OUT, read_json
from fedleak_recorder.trees.forest import (
    DEFAULT_LEFT,
    FEATURE,
    FIELDS,
    GAIN,
    HESSIAN,
    LARGEST_INDEX,
    LEFT,
    MOST_NODES,
    RIGHT,
    THRESHOLD,
    WEIGHT,
    Forest,
    stacked,
)
from fedleak_recorder.trees.ubj import read_ubj

OBJECTIVES = ("binary:logistic", "reg:squarederror")
"""Losses of one score whose trees are read."""
_LISTS = {
    LEFT: "left_children",
    RIGHT: "right_children",
    FEATURE: "split_indices",
    THRESHOLD: "split_conditions",
    WEIGHT: "base_weights",
    HESSIAN: "sum_hessian",
    GAIN: "loss_changes",
    DEFAULT_LEFT: "default_left",
}
"""Lists of a tree, by the field of the layout."""
_UNREAD = {
    b"tree\n": "a model of LightGBM",
    b"CBM1": "a model of CatBoost",
    b"binf": "XGBoost's old binary format",
    b"\x80": "a pickle, which is never opened",
}
"""First bytes of other formats, which are named and not read."""
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")
_NUMBER = re.compile(r"[-+]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][-+]?[0-9]{1,3})?")
_ONE_SCORE = "Send trees of one score with numeric splits; others cannot be recorded."


def read_forest(content: bytes | bytearray | memoryview | str | Mapping[str, Any], *, where: str = "a model") -> Forest:
    """The trees of a model of XGBoost.

    Nothing of it is executed, and no package is needed. Nodes are numbered anew, level by level from the root, so that
    children stand after their parents; nodes that were cut off are left out. Fields that are not needed are not looked
    at.

    Args:
        content: what ``Booster.save_raw`` gives, in JSON or UBJ, or the values of the JSON.
        where: what it is, for errors.

    Raises:
        InputError: it is no such model, or has several scores, categorical splits, dropout, or another loss.

    Example:
        >>> tree = {
        ...     "left_children": [1, -1, -1], "right_children": [2, -1, -1], "split_indices": [0, 0, 0],
        ...     "split_conditions": [0.5, -0.3, 0.3], "base_weights": [0, -0.3, 0.3], "sum_hessian": [4, 2, 2],
        ...     "loss_changes": [1, 0, 0], "default_left": [0, 0, 0], "split_type": [0, 0, 0],
        ... }
        >>> booster = {"name": "gbtree", "model": {"trees": [tree]}}
        >>> parameters = {"base_score": "[5E-1]", "num_class": "0", "num_feature": "4"}
        >>> objective = {"name": "binary:logistic"}
        >>> learner = {"gradient_booster": booster, "learner_model_param": parameters, "objective": objective}
        >>> read_forest({"learner": learner}).trees.shape
        (1, 3, 8)
    """
    values = content
    if isinstance(content, str):
        content = content.encode("utf-8", errors="surrogatepass")
    if isinstance(content, bytes | bytearray | memoryview):
        values = read_values(bytes(content), where=where)
    try:
        return _forest(values, where)
    except RecursionError:
        raise InputError(expected=f"a model in {where}", found="values nested too deeply", way_out=WAY_OUT) from None


def read_values(content: bytes, *, where: str = "a model") -> Any:
    """The values of a model's JSON or UBJ, of which nothing is checked yet.

    Args:
        content: what ``Booster.save_raw`` gives.
        where: what it is, for errors.

    Raises:
        InputError: it is neither format.

    Example:
        >>> read_values(b'{"version": [3, 2, 0]}')
        {'version': [3, 2, 0]}
    """
    for beginning, kind in _UNREAD.items():
        require(not content.startswith(beginning), f"a model of XGBoost in {where}", kind, "Send JSON or UBJ.")
    require(content[:1] == b"{", f"a model of XGBoost in {where}", repr(content[:8]), "Send JSON or UBJ.")
    # A key in JSON begins with a quotation mark, a key in UBJ with the type of its length.
    if content[1:100].lstrip()[:1] in (b'"', b"}"):
        return read_json(content, where=where)
    return read_ubj(content, where=where)


def _forest(values: Any, where: str) -> Forest:
    learner = _part(values, "learner", where)
    booster = _part(learner, "gradient_booster", where)
    parameters = _part(learner, "learner_model_param", where)
    kind = booster.get("name")
    require(kind == "gbtree", f"trees without dropout in {where}", _short(kind), _ONE_SCORE)
    objective = _part(learner, "objective", where).get("name")
    is_known = isinstance(objective, str) and objective in OBJECTIVES
    require(is_known, f"a loss among {', '.join(OBJECTIVES)} in {where}", _short(objective), _ONE_SCORE)
    for name, most in (("num_class", 1), ("num_target", 1)):
        scores = _whole_number(parameters.get(name, 0), name, where)
        require(scores <= most, f"one score in {where}", f"{name} {scores}", _ONE_SCORE)
    features = _whole_number(parameters.get("num_feature"), "num_feature", where)
    require(0 < features <= LARGEST_INDEX, f"1 to {LARGEST_INDEX} columns in {where}", features, WAY_OUT)
    model = _part(booster, "model", where)
    _check_alone(model, where)
    _check_weights(_part(learner, "objective", where), where)
    described = model.get("trees")
    require(isinstance(described, list), f"a list of trees in {where}", _short(described), WAY_OUT)
    assert isinstance(described, list)
    trees = []
    for number, tree in enumerate(described):
        trees.append(_tree(tree, features, f"tree {number} of {where}"))
    base_score = _base_score(parameters.get("base_score"), str(objective), where)
    return Forest(stacked(trees, where=where), base_score, features, str(objective))


def _check_alone(model: Mapping[str, Any], where: str) -> None:
    """Refuses trees of which several are grown at once: each is not grown on the one before."""
    options = model.get("gbtree_model_param", {})
    if isinstance(options, Mapping):
        at_once = _whole_number(options.get("num_parallel_tree", 1), "num_parallel_tree", where)
        require(at_once <= 1, f"trees that are grown one by one in {where}", f"num_parallel_tree {at_once}", _ONE_SCORE)


def _check_weights(objective: Mapping[str, Any], where: str) -> None:
    """Refuses trees for which positives count more or less than negatives, which no attack knows of."""
    options = objective.get("reg_loss_param", {})
    if isinstance(options, Mapping):
        factor = _single(options.get("scale_pos_weight", 1), "scale_pos_weight", where)
        require(factor == 1, f"scale_pos_weight of 1 in {where}", factor, "Such trees cannot be recorded.")


def _tree(tree: Any, features: int, where: str) -> Array:
    """``(n, 8)`` float32 nodes of one tree."""
    require(isinstance(tree, Mapping), f"a mapping as {where}", _short(tree), WAY_OUT)
    sizes = tree.get("tree_param", {})
    if isinstance(sizes, Mapping):
        outputs = _whole_number(sizes.get("size_leaf_vector", 1), "size_leaf_vector", where)
        require(outputs <= 1, f"one score in {where}", f"leaves of {outputs} numbers", _ONE_SCORE)
    nodes = np.zeros((0, FIELDS), np.float64)
    for field, name in _LISTS.items():
        column = _numbers(tree.get(name), f"{name!r} of {where}")
        if field == LEFT:
            nodes = np.zeros((len(column), FIELDS), np.float64)
        fits = 0 < len(column) == len(nodes)
        require(fits, f"{len(nodes)} numbers, of each node, in {name!r} of {where}", len(column), WAY_OUT)
        nodes[:, field] = column
    is_categorical = False
    for name in ("split_type", "categories", "categories_nodes"):
        is_categorical |= bool(_numbers(tree.get(name, []), f"{name!r} of {where}").any())
        is_categorical |= name != "split_type" and len(tree.get(name, [])) > 0
    require(not is_categorical, f"numeric splits in {where}", "categorical ones", _ONE_SCORE)
    return _in_levels(nodes, features, where)


def _in_levels(nodes: Array, features: int, where: str) -> Array:
    """The nodes that the root leads to, level by level, with the numbers of children changed accordingly."""
    order = [0]
    reached = {0}
    position = 0
    children = nodes[:, [LEFT, RIGHT]].tolist()
    # `order` grows while it is read: the children of a node come behind all nodes of its level.
    while position < len(order):
        left, right = children[order[position]]
        position += 1
        if left == right == -1:
            continue
        for child in (left, right):
            is_new = child == int(child) and 0 < child < len(nodes) and child not in reached
            require(is_new, f"a child of its own for each split in {where}", f"node {child}", WAY_OUT)
            reached.add(int(child))
            order.append(int(child))
    ordered = nodes[order]
    is_split = ordered[:, LEFT] >= 0
    columns = ordered[is_split, FEATURE]
    are_columns = np.all((columns >= 0) & (columns < features) & (columns == np.floor(columns)))
    require(are_columns, f"splits of columns 0 to {features - 1} in {where}", "others", WAY_OUT)
    # Children were put behind each other in the order of their parents.
    following = 2 * np.cumsum(is_split)
    ordered[is_split, LEFT] = following[is_split] - 1
    ordered[is_split, RIGHT] = following[is_split]
    # Of a leaf XGBoost writes the column 0; whatever a stranger writes there says nothing.
    ordered[~is_split, FEATURE] = 0
    ordered[:, DEFAULT_LEFT] = ordered[:, DEFAULT_LEFT] != 0
    with np.errstate(over="ignore"):
        single = ordered.astype(np.float32)
    require(np.isfinite(single).all(), f"numbers of single precision in {where}", "larger ones", WAY_OUT)
    return single


def _numbers(values: Any, what: str) -> Array:
    """A list of numbers as float64; truth values count as 0 and 1."""
    # Compared before anything is allocated.
    is_list = isinstance(values, list) or (isinstance(values, np.ndarray) and values.ndim > 0)
    require(is_list and len(values) <= MOST_NODES, f"at most {MOST_NODES} numbers as {what}", _short(values), WAY_OUT)
    if isinstance(values, np.ndarray):
        is_plain = values.ndim == 1 and values.dtype.kind in "biuf"
        require(is_plain, f"a list of numbers as {what}", f"{values.dtype} {values.shape}", WAY_OUT)
        array = values.astype(np.float64)
    else:
        are_numbers = all(isinstance(value, int | float) for value in values)
        require(are_numbers, f"a list of numbers as {what}", _short(values), WAY_OUT)
        try:
            array = np.array(values, np.float64)
        except (OverflowError, ValueError):  # whole numbers beyond double precision
            raise InputError(expected=f"numbers as {what}", found="larger ones", way_out=WAY_OUT) from None
    require(np.isfinite(array).all(), f"finite numbers as {what}", "others", WAY_OUT)
    return array


def _base_score(value: Any, objective: str, where: str) -> float:
    """The score before the first tree, which newer versions write as a list of one."""
    if isinstance(value, str):
        value = value.removeprefix("[").removesuffix("]")
    score = _single(value, "base_score", where)
    is_score = objective != "binary:logistic" or 0 < score < 1
    require(is_score, f"a probability as base_score of {where}", score, WAY_OUT)
    return score


def _single(value: Any, name: str, where: str) -> float:
    """A number of single precision, also as text, as XGBoost writes it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_text = isinstance(value, str) and _NUMBER.fullmatch(value[:200])
    require(is_number or is_text, f"one number as {name} of {where}", _short(value), WAY_OUT)
    try:
        with np.errstate(over="ignore"):
            number = float(np.float32(float(value)))
    except OverflowError:  # a whole number beyond double precision
        number = math.inf
    require(math.isfinite(number), f"a number of single precision as {name} of {where}", _short(value), WAY_OUT)
    return number


def _part(values: Any, name: str, where: str) -> Mapping[str, Any]:
    part = None
    if isinstance(values, Mapping):
        part = values.get(name)
    require(isinstance(part, Mapping), f"a mapping {name!r} in {where}", _short(part), WAY_OUT)
    assert isinstance(part, Mapping)
    return part


def _whole_number(value: Any, name: str, where: str) -> int:
    """A number that XGBoost writes as text."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9
    is_text = isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value[:40])
    require(is_number or is_text, f"a whole number as {name} of {where}", _short(value), WAY_OUT)
    return int(value)


def _short(value: Any) -> str:
    """A value in an error: texts and numbers themselves, of others the type, because they may be long or deep."""
    if isinstance(value, int) and abs(value) >= 2**64:  # of thousands of digits Python writes none
        return "a whole number of more than 64 bits"
    if isinstance(value, str | int | float | type(None)):
        return repr(value)[:60]
    return type(value).__name__
