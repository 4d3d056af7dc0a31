"""Clients of the test job that send adapters only, through NVFlare's patch of the Trainer of transformers.

Plain NVFlare: it imports neither fedleak nor the recorder. Each keeps its own changes for the comparison.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import nvflare.client.hf as flare
from peft import PeftModel
from transformers import Trainer, TrainerCallback, TrainingArguments

from tests.adapter_clients import State, network, state_of, texts_of, truth_of


class Kept(TrainerCallback):
    """Writes the change of the adapters by each local training."""

    def __init__(self, folder: Path, site: str) -> None:
        self.folder, self.site, self.rounds = folder, site, 0
        self.before: State = {}

    def on_step_begin(self, *_: Any, model: PeftModel, **__: Any) -> None:  # type: ignore[override]
        self.before = self.before or state_of(model)

    def on_train_end(self, *_: Any, model: PeftModel, **__: Any) -> None:  # type: ignore[override]
        deltas = {name: (value - self.before[name]).tolist() for name, value in state_of(model).items()}
        client = int(self.site.rpartition("-")[2])
        kept = {"deltas": {f"model.{name}": value for name, value in deltas.items()}, **truth_of(client)}
        (self.folder / f"{self.site}-{self.rounds}.json").write_text(json.dumps(kept))
        self.before, self.rounds = {}, self.rounds + 1


def main() -> None:
    """Trains in every round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--base", type=Path)
    options = parser.parse_args()
    flare.init()
    site = flare.get_site_name()
    client = int(site.rpartition("-")[2])
    model = network(options.base)
    model.__dict__["__fl_meta__"] = truth_of(client)  # meta data that the patched trainer sends with the adapters
    arguments = TrainingArguments(
        output_dir=str(options.kept / f"{site}-trainer"),
        per_device_train_batch_size=8,
        optim="sgd",
        learning_rate=2.0,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    data = [{"input_ids": text, "labels": text} for text in texts_of(client)]
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Kept(options.kept, site)])
    flare.patch(trainer, params_scope="auto", server_key_prefix="model.", local_steps=3, restore_state=False)
    while flare.is_running():
        trainer.train()


if __name__ == "__main__":
    main()
