"""Configuration of a run, saved in its folder and logged."""

from pathlib import Path

import yaml
from lightning import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback

from fedleak.core.errors import InputError
from fedleak.core.io.files import write_whole
from fedleak.training.lightning.unfinished_training import CHECKPOINT


class RunConfig(SaveConfigCallback):
    """Writes ``config.yaml`` into ``trainer.default_root_dir`` and logs the same keys, e.g. to W&B.

    Lightning's own callback writes into the logger's directory, which is the working directory under Weights & Biases,
    so the second run would overwrite the first one's file. Use ``save_to_log_dir=False``: then rank zero writes. The
    file is replaced atomically.
    """

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes the file; `SaveConfigCallback.setup` calls it on rank zero only.

        Raises:
            InputError: the folder cannot be created or written.
        """
        folder = Path(trainer.default_root_dir)
        config = self.config.clone()
        checkpoint = config.get("ckpt_path")
        if checkpoint is not None and Path(str(checkpoint)).name == CHECKPOINT:
            config.ckpt_path = None  # the file is removed at the end; the configuration is that of the whole training
        content = self.parser.dump(config, skip_none=False)
        try:
            write_whole(folder / self.config_filename, content.encode())
        except OSError as error:
            raise InputError(
                expected="a writable folder as --trainer.default_root_dir",
                found=f"{folder}: {str(error.strerror or error).lower()}",
                way_out="Give another folder.",
            ) from error
        for logger in trainer.loggers:
            logger.log_hyperparams(yaml.safe_load(content))
