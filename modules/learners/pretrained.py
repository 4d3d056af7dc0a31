"""Federated fine-tuning of any network of the transformers library, by adapters or whole."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torchmetrics import MeanMetric, Metric

from fedleak.client.adapters import AdapterOptions
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.network_tokens import padding_in
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.pretrained_examples import IMAGE, LABEL, TOKENS
from fedleak.client.transformer_configs import plain_configuration
from fedleak.client.transformer_networks import PretrainedTask
from fedleak.core.errors import require
from fedleak.core.seeding import generator_for
from fedleak.datamodules.devices.text import OwnedTextDataModule
from fedleak.modules.learners.text import TOP
from fedleak.server.model_manipulation import ModelManipulation
from fedleak.training.federated import FederatedModule, Federation, Unpack
from fedleak.training.round_record import TrainingExamples

FINE_TUNING = LocalTraining(learning_rate=0.1, batch_size=4)
"""Local training by default."""
_TEXTS_AT_ONCE = 512
"""Texts whose inputs of the first adapted layer are computed together."""


class Pretrained(FederatedModule):
    """Federated fine-tuning of a network that is given by a ``config.json``.

    Frozen parameters are no public parameters: the server sent them before, and no recording has them. Dropout of the
    network's layers and of the adapters is applied as its configuration says, that inside of attention is not. After
    the last round, what was trained is written to the folder ``network`` of the run, as transformers and peft read it:
    the whole network with its ``config.json``, for `path`, or the adapters.

    Args:
        path: folder with the network's ``config.json`` and, as safetensors, its weights; without these, or with the
            path of the file alone, the weights are drawn from the seed. A checkpoint does not give it:
            ``Pretrained.load_from_checkpoint("last.ckpt", path=...)``.
        task: what the network predicts.
        adapter: what of the network is trained.
        classes: number of classes; None for that of the configuration.
        manipulation: what a malicious server sends in place of the adapters, e.g. `MemoryAdapter`, or of the network,
            e.g. `TokenImprint`; None for an honest server.
        local: how clients train.
        federation: arguments of `FederatedModule`.
    """

    algorithm: PretrainedAlgorithm
    manipulation: ModelManipulation | None
    file_arguments: ClassVar[Mapping[str, tuple[str, ...]]] = {"path": ()}

    def __init__(
        self,
        *,
        path: str,
        task: PretrainedTask = "causal-lm",
        adapter: AdapterOptions = AdapterOptions(),  # noqa: B008 - frozen
        classes: int | None = None,
        manipulation: ModelManipulation | None = None,
        local: LocalTraining = FINE_TUNING,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        self.manipulation = manipulation
        network_path = Path(path)
        folder = None if network_path.suffix == ".json" else network_path
        file = network_path if folder is None else folder / "config.json"
        self.algorithm = PretrainedAlgorithm(
            config=configuration(file, classes=classes),
            task=task,
            adapter=adapter,
            base_seed=self.seed,
            padding=0 if adapter.variant == "none" else padding_in(folder),
            folder=folder,
            local=self.local,
            update_l1=self.update_l1,
        )
        for name, value in self.algorithm.first_model().items():
            _put(self, name.split("."), nn.Parameter(value))
        self.quality = MeanMetric()

    def learns_from(self, round_number: int) -> bool:
        """Rounds with a manipulation do not change the global model."""
        return self.manipulation is None or round_number < self.manipulation.first_round

    def send(self, cohort: Cohort, model: Parameters) -> Parameters:
        manipulation = self.manipulation
        if manipulation is None or cohort.round < manipulation.first_round:
            return model
        global_model = {name: value.cpu() for name, value in model.items()}
        own_examples = torch.zeros(0, 0, 0)
        if manipulation.takes_records:
            own_examples = self._own_texts()
        elif manipulation.uses_examples:
            own_examples = self._first_inputs(global_model)
        generator = generator_for(self.seed, "manipulation", cohort.round)
        sent = manipulation.sent(global_model, own_examples, cohort.clients.cpu(), generator=generator)
        require(len(sent) == 1, "a manipulation with one model for all", f"{len(sent)} models", "Take another.")
        return {name: value.to(self.device) for name, value in sent.first.items()}

    def _first_inputs(self, model: Parameters) -> Tensor:
        """``(M, L, D)`` inputs of the first adapted layer at the places before the last, of the server's own texts."""
        vectors = []
        for part in torch.split(self._own_texts(), _TEXTS_AT_ONCE):
            inputs = self.algorithm.adapted_inputs(model, part, most=1)[0]
            vectors.append(inputs.vectors[:, :-1])
        return torch.cat(vectors)

    def _own_texts(self) -> Tensor:
        """``(M, L)`` longest texts of the devices that the server knows, as token numbers."""
        own_devices = None
        if self._data is not None:
            own_devices = self._data.client_known
        way_out = "Take data with known devices, e.g. Blog, without image-classification."
        require(
            own_devices is not None and self.algorithm.task != "image-classification",
            "texts of its own",
            "none",
            way_out,
        )
        assert self._data is not None
        assert own_devices is not None
        examples_of_devices = self._data.client_examples()
        numbers = torch.cat([examples_of_devices[device] for device in own_devices.nonzero().flatten().tolist()])
        texts = self._data.raw_examples(numbers)[0]
        # Texts of one length need no padding; of the longest, every place is known.
        sizes = (texts > 0).sum(1)
        longest = int(sizes.max())
        return texts[sizes == longest][:, :longest]

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Checks that the examples are what the network takes."""
        needed = {TOKENS}
        if self.algorithm.task == "image-classification":
            needed = {IMAGE, LABEL}
        elif self.algorithm.task == "sequence-classification":
            needed = {TOKENS, LABEL}
        expected = f"examples with {' and '.join(sorted(needed))}"
        fields = ", ".join(cohort.examples)
        require(needed <= {*cohort.examples}, expected, fields, "Give other --data, or another --model.task.")
        if TOKENS in cohort.examples:
            self._check_tokens(cohort.examples[TOKENS])
        return cohort

    def _check_tokens(self, tokens: Tensor) -> None:
        """Checks that a network reads these numbers, as many at once."""
        largest = int(tokens.max()) if tokens.numel() else 0
        size = self.algorithm.vocabulary
        way_out = "Set data.text.vocabulary to at most the network's vocab_size."
        require(largest < size, f"token numbers below the network's {size}", str(largest), way_out)
        longest = getattr(self.algorithm.network.config, "max_position_embeddings", None)
        require(
            longest is None or tokens.shape[-1] <= longest,
            f"texts of at most {longest} tokens, as many places as the network has",
            tokens.shape[-1],
            "Set data.text.words lower.",
        )
        # Texts in the network's own tokens have its number of padding exchanged with 0, and so must the network.
        tokens_of_texts = None
        if isinstance(self._data, OwnedTextDataModule):
            tokens_of_texts = self._data.text.tokens
        if tokens_of_texts is not None:
            padding = padding_in(tokens_of_texts)
            require(
                padding == self.algorithm.padding,
                f"texts in tokens of the network that is trained, with the number {self.algorithm.padding} for padding",
                f"{padding} in {tokens_of_texts}",
                "Give --data.text.tokens the folder of --model.path, and train adapters: number 0 is a word of the"
                " network, which training the whole network cannot tell from padding.",
            )

    def message_truth(self, examples: TrainingExamples) -> dict[str, Tensor]:
        """``words (C, R)`` of texts, padded with 0, and those after which something is predicted; or class counts."""
        if self.algorithm.task == "image-classification":
            assert examples.labels is not None
            classes = int(self.algorithm.network.config.num_labels)  # type: ignore[union-attr, arg-type]
            one_hot = nn.functional.one_hot(examples.labels.long(), classes)
            return {"class_counts": (one_hot * examples.mask[..., None]).sum(1)}
        tokens = examples.values * examples.mask[..., None]
        truth = {"words": _distinct(tokens)}
        if self.algorithm.task == "causal-lm":
            # Words before another one: what the network reads to predict it.
            truth["read_words"] = _distinct(tokens[..., :-1] * (tokens[..., 1:] > 0))
        return truth

    def examples(self, cohort: Cohort) -> TrainingExamples:
        """Token numbers of the texts, padded with 0, or images with their classes."""
        if IMAGE in cohort.examples:
            return TrainingExamples(cohort.examples[IMAGE], cohort.examples[LABEL], cohort.mask)
        labels = None
        if self.algorithm.task == "sequence-classification":
            labels = cohort.examples[LABEL].long()
        return TrainingExamples(cohort.examples[TOKENS], labels, cohort.mask)

    @property
    def metric(self) -> str:
        """Name of the utility metric: ``top5``, the share of next tokens among the first five, or ``accuracy``."""
        if self.algorithm.task == "causal-lm":
            return "top5"
        return "accuracy"

    def on_train_end(self) -> None:
        """Writes the network."""
        if self.trainer.is_global_zero:
            self.algorithm.save(self.public_parameters(), Path(self.trainer.default_root_dir) / "network")

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """`metric`, after adding a batch of held-out examples."""
        with torch.no_grad():
            logits = self.algorithm.outputs(self.public_parameters(), batch)
        if self.algorithm.task == "causal-lm":
            # Logits after a token predict the next one.
            following = batch[TOKENS][:, 1:]
            real = following > 0
            first_words = logits[:, :-1][real].topk(TOP, dim=1).indices
            hits = (first_words == following[real][:, None]).any(1)
        else:
            hits = logits.argmax(1) == batch[LABEL]
        self.quality.update(hits.float())
        return {f"val/{self.metric}": self.quality}


def configuration(file: Path, *, classes: int | None = None) -> str:
    """Text of a network's ``config.json``, for a number of classes: what its layers are, see `plain_configuration`.

    Raises:
        InputError: it cannot be read, or is no JSON object.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        is_object = isinstance(content, dict)
    except (OSError, ValueError):
        is_object = False
    way_out = "Give --model.path the folder of a network, or its config.json."
    require(is_object, "the config.json of a network of the transformers library", str(file), way_out)
    # Names of classes go with their number, which these options replace.
    if classes is not None:
        content |= {"num_labels": classes}
        content.pop("id2label", None)
        content.pop("label2id", None)
    return json.dumps(plain_configuration(content), sort_keys=True)


def _put(module: nn.Module, path: list[str], value: nn.Parameter) -> None:
    """Registers a parameter under a path of modules, which are made."""
    for part in path[:-1]:
        if part not in module._modules:
            module.add_module(part, nn.Module())
        module = module._modules[part]  # type: ignore[assignment]
    module.register_parameter(path[-1], value)


def _distinct(tokens: Tensor) -> Tensor:
    """``(C, R)`` different tokens above 0 of each client's ``(C, N, L)``, padded with 0."""
    distinct = [torch.unique(client_tokens[client_tokens > 0]) for client_tokens in tokens.flatten(1)]
    if distinct:
        return pad_sequence(distinct, batch_first=True)
    return tokens.new_zeros(0, 0)
