"""The run's configuration, written into the run's folder and shown by its loggers."""

from pathlib import Path

import yaml
from lightning import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback

from protocol.errors import InputError


class RunConfig(SaveConfigCallback):
    """Writes ``config.yaml`` into ``trainer.default_root_dir`` and gives the same keys to the loggers, e.g. W&B's.

    Lightning's own writes into the logger's directory, which is the working directory under Weights & Biases: the
    second run would overwrite the first one's. Give ``save_to_log_dir=False``; rank zero writes, after the others have
    agreed on it. The new file replaces an old one in one step, so a reader never sees half of it.
    """

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Called by `SaveConfigCallback.setup` on rank zero only.

        Raises:
            InputError: the folder cannot be made or written.
        """
        folder = Path(trainer.default_root_dir)
        written = folder / f".{self.config_filename}.tmp"
        content = self.parser.dump(self.config, skip_none=False)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written.write_text(content, encoding="utf-8")
            written.replace(folder / self.config_filename)
        except OSError as error:
            raise InputError(
                expected="a folder that can be written as --trainer.default_root_dir",
                found=f"{folder}: {str(error.strerror or error).lower()}",
                way_out="Give another folder.",
            ) from error
        for logger in trainer.loggers:
            logger.log_hyperparams(yaml.safe_load(content))
