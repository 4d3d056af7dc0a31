"""The pages under docs: every command in them is one that its program takes, every file they name is there."""

import re
import shlex
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser
from wandb.cli.cli import cli

import attack
from experiments import training

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs/sweeps.md", ROOT / "docs/clusters.md", ROOT / "docs/tables.md"]
_BLOCK = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:configs|docs)/[\w./]+\.\w+")


def commands(page: Path) -> list[str]:
    return [line for block in _BLOCK.findall(page.read_text(encoding="utf-8")) for line in block.splitlines() if line]


def check(command: str) -> None:
    """Fails where the command's own program would refuse it."""
    words = shlex.split(command)
    variables = [words.pop(0).split("=")[0] for _ in range(len(words)) if re.match(r"[A-Z_]+=", words[0])]
    program, *rest = words
    if program == "torchrun":
        parsed = get_args_parser().parse_args(rest)
        rest = [parsed.training_script, *parsed.training_script_args]
    if program in ("python", "torchrun"):
        _check_ours(rest[0], rest[1:])
    elif program == "sbatch":
        _check_batch(variables, rest)
    elif program == "wandb":
        # What a run will have left is not there yet.
        cli.commands[rest[0]].make_context(rest[0], ["." if word.startswith("runs/") else word for word in rest[1:]])
    else:
        raise AssertionError(f"no program of ours: {program}")


def _check_ours(program: str, arguments: list[str]) -> None:
    if program == "attack.py":
        attack._parser().parse_args(attack._plain_names(arguments))
        return
    assert program == "train.py"
    with pytest.raises(SystemExit) as status:
        training.main([*arguments, "--print_config"])
    assert status.value.code in (0, None), arguments


def _check_batch(variables: list[str], words: list[str]) -> None:
    place = next(i for i, word in enumerate(words) if not word.startswith("--"))
    for option in words[:place]:
        if option.startswith("--export=ALL,"):
            variables = [*variables, option.removeprefix("--export=ALL,").split("=")[0]]
    text = (ROOT / words[place]).read_text(encoding="utf-8")
    for name in variables:
        assert re.search(rf"\$\{{{name}:[-?]", text), f"{words[place]} knows no {name}"
    if "train.sbatch" in words[place]:
        _check_ours("train.py", ["fit", "--config", "configs/train/fncf_movielens.yaml", *words[place + 1 :]])
    if "attack_array" in words[place]:
        _check_ours("attack.py", ["reproduce", "configs/paper/raifle_table5.yaml", *words[place + 1 :]])


@pytest.mark.parametrize(
    "command", [pytest.param(line, id=f"{page.stem}: {line[:60]}") for page in PAGES for line in commands(page)]
)
def test_a_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["train.py"])
    check(command)


@pytest.mark.parametrize(
    "command",
    [
        "python train.py fit --config configs/train/fncf_synthetic.yaml --trainer.nonsense 1",
        "python attack.py audit --nonsense 1",
        "torchrun --nonsense 2 train.py fit",
        "NONSENSE=1 sbatch configs/cluster/train.sbatch",
        "wandb sweep --nonsense x",
        "rm x",
    ],
)
def test_a_wrong_command_is_found(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["train.py"])
    with pytest.raises((SystemExit, Exception, AssertionError)) as refused:
        check(command)
    assert getattr(refused.value, "code", 2) == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = set(_FILE.findall(page.read_text(encoding="utf-8")))
    assert len(named) > 2
    assert {name for name in named if not (ROOT / name).is_file()} == set()
    linked = re.findall(r"\]\(([\w./]+)\)", page.read_text(encoding="utf-8"))
    assert all((page.parent / name).is_file() for name in linked)
