"""The run's configuration, written into the run's folder."""

from pathlib import Path

from lightning import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback


class RunConfig(SaveConfigCallback):
    """Writes ``config.yaml`` into ``trainer.default_root_dir``, whichever logger is used.

    Lightning's own writes into the logger's directory, which is the working directory under Weights & Biases: the
    second run would overwrite the first one's. Give ``save_to_log_dir=False``; rank zero writes, after the others have
    agreed on it. The new file replaces an old one in one step, so a reader never sees half of it.
    """

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Called by `SaveConfigCallback.setup` on rank zero only."""
        folder = Path(trainer.default_root_dir)
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / f".{self.config_filename}.tmp"
        self.parser.save(self.config, written, skip_none=False, overwrite=True, multifile=False)
        written.replace(folder / self.config_filename)
