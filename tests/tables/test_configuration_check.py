"""Names and values of a configuration are compared with what the named classes take, before it is parsed."""

from typing import Any

import pytest
import yaml

from fedleak.core.errors import InputError
from fedleak.tables import training
from fedleak.tables.command_words import Given
from fedleak.tables.configuration_check import ConfigurationCheck
from fedleak.tables.parsed_training import Training
from tests.places import CONFIGS

BASE = {"model": {"class_path": "FNCF"}, "data": {"class_path": "SyntheticRecommender"}}
DEFENCE = {"class_path": "LocalDP", "init_args": {"clip": 1.0, "epsilon": 5.0, "delta": 1e-5}}


def check(*parts: dict[str, Any]) -> None:
    assert training.SHORT_NAMES  # imports the classes that may be named in short
    checked = ConfigurationCheck(options=["seed_everything", "ckpt_path"], trainer_defaults=training.TRAINER_DEFAULTS)
    for part in (BASE, *parts):
        checked.add(Given(part))
    checked.finish()


@pytest.mark.parametrize(
    "part",
    [
        {"seed_everything": 3},
        {"model": {"local": {"epochs": "3", "learning_rate": "1e-3"}}},
        {"model.local.epochs": 3},
        {"model": {"init_args": {"local.epochs": 3}, "hidden": "[8, 4]"}},
        {"model": {"weighting": None, "defenses": [DEFENCE]}},
        {"model": {"defenses+": DEFENCE}},
        {"model": {"local": {"betas": [0.9, 0.99]}}},
        {"data": {"clients_per_round": 0.5, "root": "3"}},
        {"model": {"hidden": (8, 4)}},
        {"trainer": {"callbacks": [{"class_path": "EarlyStopping", "init_args": {"monitor": "x"}}]}},
        {"trainer": {"logger": True, "max_time": "00:00:10:00", "devices": [0]}},
        {"trainer": {"logger": "WandbLogger"}},
        {"model": {"class_path": "fedleak.modules.FNCF", "dict_kwargs": {"more": 3}}},
        {"model": {"class_path": "yaml.safe_load"}},
    ],
)
def test_what_fits_is_taken(part: dict[str, Any]) -> None:
    check(part)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"modl": {"seed": 3}}, "found modl.seed. Did you mean model.seed?"),
        ({"model.local.epoch": 3}, "Did you mean model.local.epochs?"),
        ({"model": {"local": {"betas": [0.9]}}}, "expected model.local.betas as a list of 2 values; found [0.9]"),
        ({"model": {"local": {"betas": [0.9, "x"]}}}, "expected model.local.betas[1] as a number from 0 to 1; found x"),
        ({"model": {"user_dim": [1]}}, "expected model.user_dim as a whole number above 0; found [1]"),
        ({"model": {"user_dim": {"a": 1}}}, "expected model.user_dim as a whole number above 0"),
        ({"model": {"init_args": 3}}, "expected model.init_args as values by name; found 3"),
        ({"model": 3}, "expected model as the name or path of a LightningModule; found 3"),
        ({"model": {"class_path": "json.JSONDecoder"}}, "It is no LightningModule. Known: "),
        ({"model": {"class_path": "fedleak.modules.FNFC"}}, "found fedleak.modules.FNFC. Did you mean FNCF?"),
        ({"model": {"defenses": [{**DEFENCE, "init_args": {"clip": "x"}}]}}, "model.defenses[0].clip as a number"),
        ({"model": {"defenses": ["LocalDP"]}}, "expected clip and epsilon and delta, which LocalDP needs; found none"),
        ({"model": {"defenses": [DEFENCE], "defenses+": {"class_path": "LocalDB"}}}, "model.defenses[1] as the name"),
        ({"trainer": {"max_stps": 3}}, "Did you mean trainer.max_steps"),
        ({"trainer": {"zzz": 3}}, "`fedleak train fit --help` lists the options."),
        ({"trainer": {"enable_checkpointing": "maybe"}}, "as true or false; found maybe. The default is null."),
        ({"trainer": {"max_epochs": "x"}}, "expected trainer.max_epochs as a whole number; found x. The default is 1."),
        ({"data": {"root": 3}}, "expected data.root as a text; found 3. Write it in quotes, '3'"),
        ({"trainer": "x"}, "expected trainer as values by name; found x"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(part: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        check(part)
    assert message in str(refused.value)


def test_another_class_keeps_the_arguments_that_it_takes() -> None:
    check({"model": {"local": {"epochs": 2}}}, {"model": "FederatedMF"})
    pretrained = {"model": {"class_path": "Pretrained", "init_args": {"path": "base"}}}
    check(pretrained, {"model": {"class_path": "Pretrained"}})
    with pytest.raises(InputError, match="expected path, which Pretrained needs"):
        check(pretrained, {"model": "FNCF"}, {"model": "Pretrained"})


def test_the_file_is_named() -> None:
    checked = ConfigurationCheck(options=[], trainer_defaults={})
    with pytest.raises(InputError, match=r"arguments that FNCF takes in run.yaml; found model.hiddn"):
        checked.add(Given({"model": {"class_path": "FNCF", "init_args": {"hiddn": 3}}}, " in run.yaml"))


@pytest.mark.parametrize("path", sorted((CONFIGS / "train").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_is_taken_with_all_its_defaults(path: Any) -> None:
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    check(Training(config).plain)


def test_a_cell_of_a_table_and_the_command_line_get_the_same_message() -> None:
    wrong = {**BASE, "trainer": {"max_steps": "x"}}
    message = "expected trainer.max_steps as a whole number; found x. The default is -1."
    with pytest.raises(InputError) as of_a_cell:
        Training(wrong)
    assert str(of_a_cell.value) == message
    with pytest.raises(InputError) as of_the_command:
        training.main(["fit", "--model", "FNCF", "--data", "SyntheticRecommender", "--trainer.max_steps", "x"])
    assert str(of_the_command.value) == message
