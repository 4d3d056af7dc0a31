"""A table is a grid of overrides of a training, and what is wrong with it is known before anything is trained."""

from pathlib import Path
from typing import Any

import pytest

from fedleak.core.errors import InputError
from fedleak.tables.table import Choice, read_table
from tests.places import CONFIGS
from tests.tables.tables import RECOMMENDER, cells_of

GRID = """
setting: {theorem: 2, epsilon: none}
axes:
  data: {synthetic: {data.items: 90}}
  epsilon: {inf: {}, "500, 20": {model.defenses: [{class_path: RowNoise, init_args: {scale: $}}]}}
  variant:
    plain: {}
    fast: {model.local.epochs: 1, setting: {rate: 3}, where: {epsilon: [inf, 20]}}
    alone: {attacks: [direction], where: {epsilon: inf}}
    other: {attacks: {direction: {victims: 2}}, where: {epsilon: inf}}
"""
MORE = RECOMMENDER.replace("{direction: {}}", "{direction: {}, row-norm: {}}") + GRID


def labels(cells: list[Any]) -> list[tuple[Any, Any]]:
    return [(cell.setting["epsilon"], cell.setting["variant"]) for cell in cells]


def test_every_combination_of_labels_is_a_cell_except_where_one_is_confined(tmp_path: Path) -> None:
    cells = cells_of(tmp_path, MORE)
    assert labels(cells) == [
        *(("inf", variant) for variant in ("plain", "fast", "alone", "other")),
        (500, "plain"),
        *((20, variant) for variant in ("plain", "fast")),
    ]
    assert [cell.key for cell in cells][:2] == ["synthetic-inf-plain-seed0", "synthetic-inf-fast-seed0"]
    assert [cell.key for cell in cells_of(tmp_path, MORE, seeds=2)][1] == "synthetic-inf-plain-seed1"


def test_a_cell_has_its_labels_columns_and_its_training_their_overrides(tmp_path: Path) -> None:
    by_label = dict(zip(labels(cells_of(tmp_path, MORE)), cells_of(tmp_path, MORE), strict=True))
    noisy = by_label[20, "fast"]
    assert noisy.setting == {"data": "synthetic", "epsilon": 20, "variant": "fast", "theorem": 2, "rate": 3}
    model = noisy.training["model"]["init_args"]
    (noise,) = model["defenses"]
    assert (noise["class_path"], noise["init_args"]["scale"]) == ("fedleak.defenses.row_noise.RowNoise", 20.0)
    assert (model["local"]["epochs"], model["local"]["eps_root"]) == (1, 1e-8)
    assert noisy.training["data"]["init_args"]["items"] == 90
    assert by_label["inf", "plain"].training["model"]["init_args"]["local"]["epochs"] == 2


def test_a_list_of_attacks_leaves_out_the_others_and_a_mapping_changes_some(tmp_path: Path) -> None:
    by_label = dict(zip(labels(cells_of(tmp_path, MORE)), cells_of(tmp_path, MORE), strict=True))
    assert dict(by_label["inf", "alone"].attacks) == {"direction": {}}
    assert dict(by_label["inf", "other"].attacks) == {"direction": {"victims": 2}, "row-norm": {}}
    assert by_label["inf", "other"].limits == {"direction": 2}


def test_cells_with_the_same_training_share_its_folder(tmp_path: Path) -> None:
    grid = cells_of(tmp_path, MORE)
    cells = {label: cell.folder for label, cell in zip(labels(grid), grid, strict=True)}
    assert cells["inf", "plain"] == cells["inf", "alone"] == cells["inf", "other"]
    assert len(set(cells.values())) == 5
    seeds = {cell.folder for cell in cells_of(tmp_path, RECOMMENDER, seeds=2)}
    assert len(seeds) == 2


def test_where_data_lie_and_on_how_many_devices_decides_no_number(tmp_path: Path) -> None:
    (plain,) = cells_of(tmp_path, RECOMMENDER)
    (other,) = cells_of(tmp_path, RECOMMENDER, root=str(tmp_path), overrides={"trainer.devices": 2})
    assert plain.folder == other.folder


def test_the_command_line_changes_every_cell(tmp_path: Path) -> None:
    cells = cells_of(tmp_path, MORE, overrides={"model.local.epochs": 7, "model.user_dim": 8}, attacks=["popularity"])
    for cell in cells:
        model = cell.training["model"]["init_args"]
        assert (model["local"]["epochs"], model["user_dim"]) == (7, 8)
        assert list(cell.attacks)[-1] == "popularity"


def test_scales_parts_and_arguments_for_all(tmp_path: Path) -> None:
    more = """
axes: {width: {"8, 16": {model.user_dim: $}}}
arguments: {user: fixed}
scales: {paper: {axes: {width: {32: {model.user_dim: 32}}}}}
also: [{axes: {width: {64: {model.user_dim: 64}}}, attacks: {row-norm: {}}}]
"""
    text = RECOMMENDER.replace("{direction: {}}", "{recommendation/raifle: {}, direction: {}}") + more
    small, paper = (cells_of(tmp_path, text, scale=scale) for scale in ("small", "paper"))
    assert [cell.setting["width"] for cell in small] == [8, 16, 64]
    assert [cell.setting["width"] for cell in paper] == [32, 64]
    assert dict(small[0].attacks) == {"recommendation/raifle": {"user": "fixed"}, "direction": {}}
    assert list(small[-1].attacks) == ["row-norm"]


def test_a_table_over_itself_names_the_circle(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("over: b.yaml\n")
    (tmp_path / "b.yaml").write_text("over: ../b/../" + tmp_path.name + "/a.yaml\n")
    (tmp_path.parent / "b").mkdir(exist_ok=True)
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    with pytest.raises(InputError, match=f"in a circle: {first} over {second} over {first}"):
        read_table(first)


def test_a_table_over_another(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(MORE)
    (cell,) = cells_of(
        tmp_path, "over: first.yaml\naxes: {epsilon: [inf], variant: [plain]}\nattacks: {row-norm: {}}\n"
    )
    assert cell.setting == {"data": "synthetic", "epsilon": "inf", "variant": "plain", "theorem": 2}
    assert (cell.table, list(cell.attacks)) == ("table", ["row-norm"])


@pytest.mark.parametrize(("name", "expected"), [("ml-latest-small", "ml-latest-small"), ("ml-1m", "ml-1m")])
def test_a_table_runs_on_another_data_set_of_its_kind(tmp_path: Path, name: str, expected: str) -> None:
    cells = read_table(CONFIGS / "paper" / "raifle" / "raifle_table5.yaml").cells(Choice(data=name))
    assert {cell.setting["data"] for cell in cells} == {name}
    data = cells[0].training["data"]
    assert (data["class_path"], data["init_args"]["variant"]) == (
        "fedleak.datamodules.recommendation.movielens.MovieLens",
        expected,
    )
    assert data["init_args"]["holdout"] is False
    (own,) = cells_of(
        tmp_path, RECOMMENDER, data="fedleak.datamodules.recommendation.steam.Steam", overrides={"data": "Steam"}
    )
    assert own.training["data"]["class_path"] == "fedleak.datamodules.recommendation.steam.Steam"


def test_data_that_are_named_twice_are_the_same(tmp_path: Path) -> None:
    twice = RECOMMENDER.replace("data.users: 30", "data: MovieLens").replace(
        "attacks:", "axes: {data: {ml-100k: {}}}\nattacks:"
    )
    (cell,) = cells_of(tmp_path, twice)
    assert cell.training["data"]["class_path"] == "fedleak.datamodules.recommendation.movielens.MovieLens"
    (other,) = cells_of(tmp_path, twice, data="steam-200k")
    assert other.training["data"]["class_path"] == "fedleak.datamodules.recommendation.steam.Steam"
    with pytest.raises(InputError, match="`data: Steam` in --set"):
        cells_of(tmp_path, twice, overrides={"data": "Steam"})


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("metrics:", "metrix:", "table.yaml. Did you mean metrics?"),
        ("metrics: [auc]", "metrics: 4", "a list as the table.metrics; found 4"),
        ("metrics: [auc]", "metrics: [aux]", "found 'aux'. Did you mean auc?"),
        ("attacks: {direction: {}}", "attacks: {directoin: {}}", "found 'directoin'. Did you mean direction?"),
        ("attacks: {direction: {}}", "attacks: {direction: {shadow: 1}}", "found 'shadow'"),
        ("attacks: {direction: {}}", "attacks: {matched-filter: {shadow: 1}}", "found 'shadow'. Did you mean shadows?"),
        ("attacks: {direction: {}}", "attacks: {recommendation/raifle: {max_iter: 0}}", "max_iter"),
        ("attacks: {direction: {}}", "attacks: {raifle: {}}", "Give the family too"),
        ("data.users: 30", "data.usrs: 30", "usrs"),
        ("data.users: 30", "date.users: 30", "'date.users'"),
        ("data.users: 30", "data.users: many", "many"),
        ("model.local.epochs: 2", "model.local.epoch: 2", "epoch"),
        ("trainer.max_steps: 1", "trainer.max_stepz: 1", "max_stepz"),
        ("trainer.max_steps: 1", "attack: [direction]", "'attack'. Did you mean attacks?"),
        ("train: ", "train: /nowhere", "a configuration as in configs/train"),
        ("train: ", 'train: "\\0" # ', "Write it without the character 0"),
        ("metrics:", 'over: "\\0"\nmetrics:', "null byte"),
        ("attacks:", "after: [bound]\nattacks:", "found 'bound'"),
        ("attacks:", "axes: {a: {x: {where: {b: 1}}}}\nattacks:", "found 'b'"),
        ("attacks:", "axes: {a: {x: {}, y: {modle.user_dim: 3}}}\nattacks:", "'modle.user_dim'"),
        ("attacks:", "axes: {data: [MNIST]}\nattacks:", "found 'MNIST'"),
        ("attacks:", "axes: {data: [ml-100]}\nattacks:", "found 'ml-100'. Did you mean ml-100k or"),
        ("data.users: 30", "data: MovieLens", "`data: MovieLens` in `set`. Write it as a label"),
        ("data.users: 30", "data: {class_path: MovieLens}", "`data: MovieLens` in `set`"),
        ("data.users: 30", "data.class_path: MovieLens", "`data.class_path: MovieLens` in `set`"),
        ("attacks:", "axes: {a: {x: {data: MovieLens}}}\nattacks:", "`data: MovieLens` in axis a, label x"),
        ("attacks:", "axes: {data: {ml-100k: {}}, a: {x: {data: Steam}}}\nattacks:", "(here MovieLens)"),
        ("attacks:", "axes: {a: {x: {data: Steam}}, data: {ml-100k: {}}}\nattacks:", "(here MovieLens)"),
        ("attacks:", "rounds: {wich: [1]}\nattacks:", "'wich'. Did you mean which?"),
        ("attacks:", "messages: {pair: prior}\nattacks:", "pair"),
        ("attacks:", "record: {parameter: [a]}\nattacks:", "parameter"),
        ("attacks:", "scales: {tiny: {}}\nattacks:", "'tiny'"),
        ("attacks:", "scales: {small: 4}\nattacks:", "as the table.scales.small; found 4"),
        ("attacks:", "scales: {small: {set: four}}\nattacks:", "scale small"),
        ("attacks:", "also: [4]\nattacks:", "the table.also[0]; found 4"),
        ("attacks:", "after: [4]\nattacks:", "the table.after[0]; found 4"),
        ("attacks:", "after: [{}]\nattacks:", "after"),
        ("metrics: [auc]", "metrics: [[auc]]", "a text as the table.metrics[0]"),
        ("attacks: {direction: {}}", "attacks: {direction: four}", "the table.attacks.direction; found 'four'"),
        ("attacks: {direction: {}}", "attacks: {direction: {1: 2}}", "1"),
        ("attacks:", "axes: {a: [[x]]}\nattacks:", "axis a"),
        ("attacks:", "axes: {a: {x: four}}\nattacks:", "axis a, label x of table.yaml"),
        ("attacks:", "axes: {a: {x: {setting: [1]}}}\nattacks:", "axis a, label x of table.yaml"),
        ("attacks:", "axes: {a: {x: {attacks: [[x]]}}}\nattacks:", "axis a, label x of table.yaml"),
        ("attacks:", "axes: {a: {x: {model.local.epochs: four}}}\nattacks:", "a x, data synthetic of table.yaml"),
        ("attacks:", "axes: {a: {x: {model.local.epoch: 2}}}\nattacks:", "a x, data synthetic of table.yaml"),
        ("attacks:", "axes: {a: {x: {trainer: 4}}}\nattacks:", "trainer"),
        ("attacks:", "axes: {a: {x: {trainer.callbacks: 4}}}\nattacks:", "callbacks"),
    ],
)
def test_what_is_wrong_is_one_message_before_anything_is_trained(
    tmp_path: Path, old: str, new: str, found: str
) -> None:
    assert old in RECOMMENDER
    with pytest.raises(InputError) as raised:
        cells_of(tmp_path, RECOMMENDER.replace(old, new))
    assert found in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_list_of_classes_that_takes_long_to_be_parsed_is_refused(tmp_path: Path) -> None:
    noise = "{class_path: LocalDP, init_args: {clip: 1, epsilon: 1}}"
    axes = f"axes: {{a: {{x: {{model.defenses: [{', '.join([noise] * 1000)}]}}}}}}\nattacks:"
    with pytest.raises(InputError, match=r"at most 32 classes as model\.init_args\.defenses .* a list of 1000\."):
        cells_of(tmp_path, RECOMMENDER.replace("attacks:", axes))


def test_a_list_of_values_that_takes_long_to_be_parsed_is_refused(tmp_path: Path) -> None:
    for values in (["a"] * 501, ["[a, {b: c}]"] * 251):
        axes = f"axes: {{a: {{x: {{record: {{parameters: [{', '.join(values)}]}}}}}}}}\nattacks:"
        with pytest.raises(InputError, match=r"at most 500 values as trainer\.callbacks\.init_args\.parameters"):
            cells_of(tmp_path, RECOMMENDER.replace("attacks:", axes))
