"""The table of the updates: norms and zeros by hand, effective rank and noise floor of known matrices."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from fedleak.commands.convert import ConvertOptions, convert
from fedleak.core.seeding import generator_for
from fedleak.evaluation.update_table import _of_adapter, _row, effective_rank, update_table
from fedleak.recordings.recording import Recording
from tests.foreign_toys import view, write_dump
from tests.transformer_toys import algorithm, moved_model, texts, view_of


def test_effective_rank_counts_equal_directions() -> None:
    one = torch.outer(torch.arange(1.0, 6), torch.arange(1.0, 4))
    found = effective_rank(torch.stack([torch.eye(5, 3), one, torch.zeros(5, 3)]).double())
    assert found[:2].tolist() == pytest.approx([3, 1])
    assert bool(found[2].isnan())
    noise = torch.randn(1, 200, 50, generator=generator_for(0, "noise"), dtype=torch.float64)
    assert float(effective_rank(noise)) == pytest.approx(50 / (1 + 50 / 200), rel=0.05)


@pytest.mark.integration
def test_every_tensor_of_a_recording_has_a_row(tmp_path: Path) -> None:
    convert(ConvertOptions(source=str(write_dump(tmp_path / "dump")), out=str(tmp_path / "deltas")))
    table = update_table(Recording(tmp_path / "deltas")).set_index("tensor")
    seen = view()
    assert list(table.index) == list(seen.deltas)
    norms = seen.deltas["output.weight"].flatten(1).norm(dim=1)
    row: Any = table.loc["output.weight"]
    assert (row["shape"], row["n"]) == ("10 x 32", 10)
    assert float(row["smallest"]) <= float(row["norm"]) <= float(row["largest"]) <= float(norms.max()) * 1.0001
    assert float(row["norm"]) == pytest.approx(float(norms.mean()), rel=1e-5)
    assert 1 <= float(row["rank"]) <= float(row["of"]) == 10
    assert "class shares" in str(table.loc["output.bias", "remark"])
    assert table["remark"].notna().sum() == 1


def adapters(**changes: Any) -> dict[str, tuple[str | None, str | None]]:
    """Remarks on adapters of rank 8, some of whose updates are changed, where 8 and where 4 is declared."""
    own, tokens = algorithm(rank=8), texts(4, 2)
    seen = view_of(own, tokens, changes.pop("model", moved_model(rank=8)))
    deltas = {**seen.deltas, **{name: change(seen.deltas[name]) for name, change in changes.items()}}
    rows = [_row([dataclasses.replace(seen, deltas=deltas)], name, {}) for name in deltas]
    views = [dataclasses.replace(seen, deltas=deltas)]
    return {row["tensor"]: (_of_adapter(views, row, 8), _of_adapter(views, row, 4)) for row in rows}


QUERY = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.integration
def test_adapters_that_did_not_move_or_moved_by_noise_alone_are_named() -> None:
    assert {own for own, _ in adapters().values()} == {None}
    assert adapters(**{QUERY: torch.zeros_like})[QUERY][0] == "adapter did not move"
    generator = generator_for(0, "noise")
    noisy = adapters(**{QUERY: lambda delta: torch.randn(delta.shape, generator=generator)})
    assert str(noisy[QUERY][0]).startswith("only noise moved")
    first = adapters(model=algorithm(rank=8).first_model())
    assert all("its B was zero" in str(own) for name, (own, _) in first.items() if "lora_A" in name)
    assert all("4 is declared, the adapter has 8" in str(other) for _, other in adapters().values())
