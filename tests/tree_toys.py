"""Models of XGBoost made by hand, in its JSON and in UBJ."""

import struct
from typing import Any

import numpy as np


def tree_values(depth: int, *, features: int, rng: np.random.Generator) -> dict[str, Any]:
    """A full tree as in XGBoost's JSON, with random splits."""
    nodes = 2 ** (depth + 1) - 1
    inner = 2**depth - 1
    children = [2 * node + 1 for node in range(inner)] + [-1] * (nodes - inner)
    values = np.round(rng.standard_normal((4, nodes)).astype(np.float32), 3)
    return {
        "base_weights": values[0].tolist(),
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": rng.integers(0, 2, nodes).tolist(),
        "id": 0,
        "left_children": children,
        "loss_changes": np.abs(values[1]).tolist(),
        "parents": [2147483647] + [(node - 1) // 2 for node in range(1, nodes)],
        "right_children": [child + 1 if child > 0 else -1 for child in children],
        "split_conditions": values[2].tolist(),
        "split_indices": [*rng.integers(0, features, inner).tolist(), *[0] * (nodes - inner)],
        "split_type": [0] * nodes,
        "sum_hessian": np.abs(values[3]).tolist(),
        "tree_param": {"num_deleted": "0", "num_feature": str(features), "num_nodes": str(nodes)},
    }


def model_values(depths: tuple[int, ...] = (2, 1, 0), *, features: int = 5, seed: int = 0) -> dict[str, Any]:
    """A model as in XGBoost's JSON."""
    rng = np.random.default_rng(seed)
    trees = [tree_values(depth, features=features, rng=rng) for depth in depths]
    return {
        "learner": {
            "attributes": {},
            "feature_names": ["age [years]", "{é"],
            "gradient_booster": {
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": list(range(len(trees) + 1)),
                    "tree_info": [0] * len(trees),
                    "trees": trees,
                },
                "name": "gbtree",
            },
            "learner_model_param": {
                "base_score": "[3.5E-1]",
                "num_class": "0",
                "num_feature": str(features),
                "num_target": "1",
            },
            "objective": {"name": "binary:logistic", "reg_loss_param": {"scale_pos_weight": "1"}},
        },
        "version": [3, 2, 0],
    }


_FLOATS = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
_TYPED = {
    **dict.fromkeys(_FLOATS, ("d", ">f4")),
    **dict.fromkeys(("left_children", "right_children", "parents", "split_indices"), ("l", ">i4")),
    **dict.fromkeys(("default_left", "split_type"), ("U", ">u1")),
}
"""Lists that XGBoost writes with a type, as marker and type of NumPy."""


def as_ubj(value: Any, name: str = "") -> bytes:
    """A value in UBJ, as XGBoost writes it: numbers of lists by their type, sizes in eight bytes."""
    if isinstance(value, dict):
        parts = [_text(key) + as_ubj(part, key) for key, part in value.items()]
        return b"{" + b"".join(parts) + b"}"
    if isinstance(value, list):
        if name in _TYPED:
            marker, kind = _TYPED[name]
            return b"[$" + marker.encode() + b"#" + _size(len(value)) + np.array(value).astype(kind).tobytes()
        return b"[#" + _size(len(value)) + b"".join(as_ubj(part) for part in value)
    if isinstance(value, str):
        return b"S" + _text(value)
    if isinstance(value, float):
        return b"D" + struct.pack(">d", value)
    return b"L" + struct.pack(">q", value)


def _size(number: int) -> bytes:
    return b"L" + struct.pack(">q", number)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _size(len(encoded)) + encoded


SITE_ROWS = np.linspace(0, 1, 201)[:200, None].repeat(3, axis=1)
"""Two hundred rows of a site with three columns, each from 0 to 1 in equal steps."""
SITE_LABELS = np.arange(200) % 2
"""Their classes, which take turns."""


def site_model(*thresholds: float, splits: int = 1, masked: bool = False, **learner: Any) -> dict[str, Any]:
    """A model with a tree for each threshold: splits of the first column, each a tenth above the one before."""
    trees = []
    for threshold in thresholds:
        nodes = 2 * splits + 1
        # Split s is node 2 s; its left child is the leaf 2 s + 1, its right one the split 2 s + 2.
        children = [node + 1 if node % 2 == 0 and node < nodes - 1 else -1 for node in range(nodes)]
        cuts = [round(threshold + 0.1 * (node // 2), 6) for node in range(nodes)]
        tree = {
            "left_children": children,
            "right_children": [child + 1 if child > 0 else -1 for child in children],
            "split_indices": [0] * nodes,
            "split_conditions": [float(np.float32(cut)) for cut in cuts],
            "base_weights": [0.1] * nodes,
            "sum_hessian": [1.0 if masked else 50.0] * nodes,
            "loss_changes": [1.0] * nodes,
            "default_left": [0] * nodes,
            "split_type": [0] * nodes,
        }
        trees.append(tree)
    values = {
        "gradient_booster": {"name": "gbtree", "model": {"trees": trees}},
        "learner_model_param": {"base_score": "[5E-1]", "num_class": "0", "num_feature": "3"},
        "objective": {"name": "binary:logistic"},
    }
    return {"learner": {**values, **learner}}
