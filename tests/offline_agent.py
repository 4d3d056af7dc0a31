"""Runs points of a sweep as W&B's agent runs them, with its own code and without its server.

Only what the server decides is done here: which values come next.
"""

import itertools
import os
import random
import sys
from pathlib import Path
from typing import Any

import yaml
from wandb.sdk.launch.sweeps import utils as sweep_utils
from wandb.wandb_agent import Agent

SWEEP_ID = "sweep0"


def points(sweep: dict[str, Any], *, drawn: int = 4) -> list[dict[str, Any]]:
    """Every point of a grid; of a random search so many, drawn as the file says."""
    if sweep["method"] == "grid":
        names, values = list(sweep["parameters"]), [choice["values"] for choice in sweep["parameters"].values()]
        return [dict(zip(names, point, strict=True)) for point in itertools.product(*values)]
    generator = random.Random(0)
    return [{name: _draw(choice, generator) for name, choice in sweep["parameters"].items()} for _ in range(drawn)]


def command(sweep: dict[str, Any], point: dict[str, Any]) -> list[str]:
    """The command line of a point, with the agent's own macros."""
    filled: list[str] = []
    given = sweep_utils.create_sweep_command_args(_instruction(sweep, point, "run0"))
    macros = {**given, "env": ["/usr/bin/env"], "interpreter": ["python"], "program": [sweep["program"]]}
    for part in sweep_utils.create_sweep_command(list(sweep["command"])):
        filled += macros[part[2:-1]] if str(part).startswith("${") else [str(part)]
    return filled


def run(sweep: dict[str, Any], point: dict[str, Any], run_id: str, folder: Path) -> int:
    """Starts the point's process as the agent does, and waits for its exit status.

    Args:
        sweep: the file's content.
        point: values by parameter.
        run_id: as the server would name the run.
        folder: where the agent keeps its own files.
    """
    os.environ.update({"WANDB_SWEEP_ID": SWEEP_ID, "WANDB_DIR": str(folder), "WANDB_MODE": "offline"})
    agent = Agent(api=None, queue=None, sweep_id=SWEEP_ID)
    agent._sweep_command = list(sweep["command"])
    agent._command_run(_instruction(sweep, point, run_id))
    return int(agent._run_processes[run_id].wait(timeout=500))


def _instruction(sweep: dict[str, Any], point: dict[str, Any], run_id: str) -> dict[str, Any]:
    args = {name: {"value": value} for name, value in point.items()}
    return {"type": "run", "run_id": run_id, "program": sweep["program"], "args": args}


def _draw(choice: dict[str, Any], generator: random.Random) -> Any:
    if "values" in choice:
        return generator.choice(choice["values"])
    low, high = choice["min"], choice["max"]
    if choice.get("distribution") == "log_uniform_values":
        return low * (high / low) ** generator.random()
    return generator.randint(low, high) if isinstance(low, int) else generator.uniform(low, high)


if __name__ == "__main__":
    content = yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.exit(run(content, points(content)[0], "point0", Path(sys.argv[1]).parent))
