"""Clients with a few images, rows of a table or sentences, which their updates give away."""

import json
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.client.adapters import AdapterOptions
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.decoder import DecoderAlgorithm, DecoderOptions
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier, draw_layers
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.text import TextAlgorithm, TextOptions
from fedleak.core.record_hash import RECORD_ORIGIN, RECORD_STEP, Grid, record_hashes
from fedleak.core.seeding import generator_for
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.view import RoundView
from fedleak.server.imprint import Imprint
from fedleak.server.memory_adapter import MemoryAdapter
from fedleak.server.token_imprint import TokenImprint

Toy = tuple[RoundView, dict[str, Tensor]]
"""What the server sees, and the ground truth by name."""
Kind = Literal[
    "images",
    "smooth",
    "convolutions",
    "imprint",
    "table",
    "sentences",
    "decoder",
    "memory",
    "adapters",
    "head",
    "imprinted-texts",
    "short-texts",
]
"""Images of a wide MLP with ReLU, of a narrow one with tanh, of convolutions, and of a layer that the server made to
keep images apart; rows of a table; sentences of an LSTM and of a decoder; those on which clients fine-tune an adapter
that the server made to keep them or an honest one, or train a whole network that it made to sort their words; one of
each client; and coloured images, on a frozen network below a head that clients train."""
NETWORKS = {
    "images": ClassifierOptions(name="mlp", hidden=200, weights="normal"),
    "smooth": ClassifierOptions(name="mlp", hidden=32, activation="tanh"),
    "convolutions": ClassifierOptions(channels=12, hidden=40),
    "imprint": ClassifierOptions(name="mlp", hidden=120),
}
IMAGES_EACH = {"images": 6, "smooth": 2, "convolutions": 2, "imprint": 6}
CLIENTS = 2
SHAPE, CLASSES = (1, 12, 12), 10
KNOWN = 60
"""Images that the server has."""
NUMBERS, LEVELS, STEP = 3, 1000, 0.006
"""Numeric columns of the table, of levels from -3 to 3."""
CATEGORIES = (2, 3, 4, 6, 8)
"""Values of each categorical column."""
SENTENCES = [
    [[5, 6, 7, 8, 9], [5, 6, 10], [11, 12, 13, 5, 6, 14], [15, 7, 16, 20]],
    [[30, 31, 32], [30, 31, 33, 34], [35, 30]],
]
"""Word numbers of each client's sentences."""
WORDS = 60
TOKENS, LENGTH = 400, 6
"""Vocabulary of the fine-tuned network, and words of a sentence."""
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": TOKENS,
    "n_embd": 96,
    "n_inner": 600,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 16,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": TOKENS,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
}


def toy(kind: Kind = "images") -> Toy:
    """What the server sees of clients after one step of SGD, and the salted hashes of their records, with these."""
    generator = generator_for(0, f"reconstruction toy: {kind}")
    if kind == "table":
        return _table(generator)
    if kind == "adapters":
        return _adapters(generator)
    if kind == "memory":
        return _memory(generator)
    if kind == "imprinted-texts":
        return _imprinted_texts(generator)
    if kind == "short-texts":
        return _short_texts(generator)
    if kind == "head":
        return _head(generator)
    if kind in ("sentences", "decoder"):
        return _sentences(kind == "decoder", generator)
    return _images(kind, generator)


def _images(kind: str, generator: torch.Generator) -> Toy:
    images = _rectangles(CLIENTS * IMAGES_EACH[kind], generator)
    labels = torch.randint(CLASSES, (len(images),), generator=generator)
    known = _rectangles(KNOWN, generator)
    auxiliary = {IMAGES: known, LABELS: torch.arange(KNOWN) % CLASSES}
    network = NETWORKS[kind]
    model = _model(network, SHAPE, CLASSES, generator)
    if kind == "imprint":
        sent = Imprint(statistic="random").sent(model, known.flatten(1), torch.arange(CLIENTS), generator=generator)
        model = dict(sent.first)
    algorithm = _algorithm(network, SHAPE, CLASSES, 0.1)
    return _classifiers(algorithm, model, images, labels, auxiliary, generator)


def _rectangles(count: int, generator: torch.Generator) -> Tensor:
    """Images of 8-bit noise within a random rectangle, on black."""
    place = torch.rand(count, 4, generator=generator)
    low = (place[:, :2] * 6).long()[..., None]
    high = low + (place[:, 2:] * 4).long()[..., None] + 3
    axis = torch.arange(SHAPE[-1])
    inside = (axis >= low) & (axis < high)
    levels = torch.randint(1, 256, (count, *SHAPE[1:]), generator=generator)
    return (levels * inside[:, 0, :, None] * inside[:, 1, None, :])[:, None].float() / 255


def _table(generator: torch.Generator) -> Toy:
    each = 4
    columns = _columns()
    normal = torch.randn(CLIENTS * each, NUMBERS, generator=generator)
    numbers = (LEVELS * (normal + 3) / 6).round().clamp(0, LEVELS).long()
    categories = [torch.randint(size, (len(numbers), 1), generator=generator) for size in CATEGORIES]
    rows = columns.encode(torch.cat([numbers, *categories], dim=1)).float().reshape(len(numbers), 1, 1, -1)
    labels = torch.randint(3, (len(rows),), generator=generator)
    network = ClassifierOptions(name="mlp", hidden=100, hidden_layers=2)
    # The server has half of the first client's rows.
    auxiliary = {IMAGES: rows[: each // 2], COLUMNS: columns.tensor}
    shape = rows.shape[1:]
    grid = columns.step.reshape(shape), columns.origin.reshape(shape)
    algorithm = _algorithm(network, (1, 1, rows.shape[3]), 3, 0.01)
    model = _model(network, (1, 1, rows.shape[3]), 3, generator)
    return _classifiers(algorithm, model, rows, labels, auxiliary, generator, grid)


def _columns() -> TableColumns:
    """Numbers first, one input each, and then an input for each value of each category."""
    sizes = torch.tensor([*[1] * NUMBERS, *CATEGORIES])
    column = torch.arange(len(sizes)).repeat_interleave(sizes)
    category = column >= NUMBERS
    return TableColumns(
        column=column,
        category=category,
        step=torch.where(category, 1.0, STEP).double(),
        origin=torch.where(category, 0.0, -3.0).double(),
        lowest=torch.zeros_like(column),
        highest=torch.where(category, 1, LEVELS),
    )


def _algorithm(
    network: ClassifierOptions, shape: tuple[int, int, int], classes: int, learning_rate: float
) -> ImageClassifierAlgorithm:
    local = LocalTraining(optimizer="sgd", learning_rate=learning_rate)
    return ImageClassifierAlgorithm(network=network, image_shape=shape, num_classes=classes, local=local)


def _model(
    network: ClassifierOptions, shape: tuple[int, int, int], classes: int, generator: torch.Generator
) -> dict[str, Tensor]:
    classifier = build_classifier(network, image_shape=shape, classes=classes, generator=generator)
    return {name: value.detach() for name, value in classifier.named_parameters()}


def _classifiers(
    algorithm: ImageClassifierAlgorithm | FrozenBackboneAlgorithm,
    model: dict[str, Tensor],
    records: Tensor,
    labels: Tensor,
    auxiliary: dict[str, Tensor],
    generator: torch.Generator,
    grid: Grid | None = None,
) -> Toy:
    """Clients that share the records equally."""
    examples = torch.arange(len(records)).reshape(CLIENTS, -1)
    view = _view(algorithm, model, records, labels, examples, auxiliary, generator)
    return view, _truth([records[own] for own in examples], grid) | {"record_labels": labels[examples]}


def _sentences(transformer: bool, generator: torch.Generator) -> Toy:
    counts = torch.tensor([len(sentences) for sentences in SENTENCES])
    texts = [torch.tensor(sentence) for sentences in SENTENCES for sentence in sentences]
    tokens = pad_sequence(texts, batch_first=True)
    examples = pad_sequence(
        list(torch.split(torch.arange(len(tokens)), counts.tolist())), batch_first=True, padding_value=-1
    )
    local = LocalTraining(optimizer="sgd", learning_rate=0.3)
    algorithm: TextAlgorithm
    if transformer:
        sizes = DecoderOptions(vocabulary=WORDS, embedding=48, hidden=64, heads=2, places=12)
        algorithm = DecoderAlgorithm(network=sizes, local=local)
        std = 0.02
    else:
        algorithm = TextAlgorithm(network=TextOptions(vocabulary=WORDS, embedding=20, hidden=24), local=local)
        std = 0.2
    model = {}
    for name, shape in algorithm.network_shapes({}).items():
        model[name] = std * torch.randn(shape, generator=generator)
        if "norm" in name:
            model[name] = torch.full(shape, float(name.endswith("weight")))
        elif transformer and name.endswith("bias"):
            model[name] = torch.zeros(shape)
    known_texts = torch.randint(1, WORDS, (20, tokens.shape[1]), generator=generator)
    auxiliary = {"prior_features": known_texts}
    view = _view(algorithm, model, tokens, torch.zeros(len(tokens)), examples, auxiliary, generator)
    return view, _truth(list(torch.split(tokens, counts.tolist())))


def _adapters(generator: torch.Generator) -> Toy:
    """Clients with three texts of seven words, of which six are read; query and value have 16 rows together."""
    each, length = 3, 7
    algorithm = PretrainedAlgorithm(
        config=json.dumps(LLAMA),
        local=LocalTraining(optimizer="sgd", learning_rate=0.5),
        adapter=AdapterOptions(rank=8, targets=("q_proj", "v_proj")),
    )
    # A second round, in which B is no longer zero.
    model = algorithm.first_model()
    for name in model:
        if "lora_B" in name:
            model[name] = 0.05 * torch.randn(model[name].shape, generator=generator)
    tokens = torch.randint(1, TOKENS, (CLIENTS * each, length), generator=generator)
    examples = torch.arange(len(tokens)).reshape(CLIENTS, each)
    labels = torch.zeros(len(tokens), dtype=torch.int64)
    view = _view(algorithm, model, tokens, labels, examples, {}, generator)
    return view, _truth(list(torch.split(tokens, each)))


def _memory(generator: torch.Generator) -> Toy:
    each = 6
    algorithm = PretrainedAlgorithm(
        config=json.dumps(GPT2),
        local=LocalTraining(optimizer="sgd", learning_rate=0.5),
        adapter=AdapterOptions(rank=64, targets=("c_fc",)),
    )
    # The server learns from texts of its own what the adapted layer reads at each place but the last.
    own_texts = torch.randint(1, TOKENS, (400, LENGTH), generator=generator)
    states = algorithm.adapted_inputs(algorithm.first_model(), own_texts, layers=1)[0].vectors[:, :-1]
    manipulation = MemoryAdapter(records=2 * each)
    sent = manipulation.sent(algorithm.first_model(), states, torch.arange(CLIENTS), generator=generator)
    tokens = torch.randint(1, TOKENS, (CLIENTS * each, LENGTH), generator=generator)
    examples = torch.arange(len(tokens)).reshape(CLIENTS, each)
    labels = torch.zeros(len(tokens), dtype=torch.int64)
    view = _view(algorithm, dict(sent.first), tokens, labels, examples, {}, generator)
    return view, _truth(list(torch.split(tokens, each)))


def _imprinted_texts(generator: torch.Generator) -> Toy:
    each = 3
    config = GPT2 | {"activation_function": "relu"}
    algorithm = PretrainedAlgorithm(
        config=json.dumps(config),
        local=LocalTraining(optimizer="sgd", learning_rate=0.1),
        adapter=AdapterOptions(variant="none"),
    )
    own_texts = torch.randint(1, TOKENS, (200, LENGTH), generator=generator)
    sent = TokenImprint().sent(algorithm.first_model(), own_texts, torch.arange(CLIENTS), generator=generator)
    tokens = torch.randint(1, TOKENS, (CLIENTS * each, LENGTH), generator=generator)
    examples = torch.arange(len(tokens)).reshape(CLIENTS, each)
    labels = torch.zeros(len(tokens), dtype=torch.int64)
    view = _view(algorithm, dict(sent.first), tokens, labels, examples, {}, generator)
    return view, _truth(list(torch.split(tokens, each)))


def _short_texts(generator: torch.Generator) -> Toy:
    config = GPT2 | {"vocab_size": WORDS, "n_embd": 32, "n_inner": 64}
    algorithm = PretrainedAlgorithm(
        config=json.dumps(config),
        local=LocalTraining(optimizer="sgd", learning_rate=0.1),
        adapter=AdapterOptions(variant="none"),
    )
    tokens = torch.randint(1, WORDS, (CLIENTS, LENGTH - 1), generator=generator)
    known_texts = torch.randint(1, WORDS, (20, LENGTH - 1), generator=generator)
    examples = torch.arange(CLIENTS)[:, None]
    labels = torch.zeros(CLIENTS, dtype=torch.int64)
    auxiliary = {"prior_features": known_texts}
    view = _view(algorithm, algorithm.first_model(), tokens, labels, examples, auxiliary, generator)
    return view, _truth(list(torch.split(tokens, 1)))


def _head(generator: torch.Generator) -> Toy:
    each = 5
    # Large patches, so that the means of the drawn network's features differ between images.
    patches = torch.randint(256, (CLIENTS * each + KNOWN, 3, 4, 4), generator=generator).float() / 255
    images = patches.repeat_interleave(4, 2).repeat_interleave(4, 3)
    labels = torch.randint(CLASSES, (CLIENTS * each,), generator=generator)
    known = {IMAGES: images[CLIENTS * each :], LABELS: torch.arange(KNOWN) % CLASSES}
    local = LocalTraining(optimizer="sgd", learning_rate=0.1)
    algorithm = FrozenBackboneAlgorithm(backbone="drawn", hidden=64, num_classes=CLASSES, local=local)
    draw_layers(algorithm.template, generator)
    model = {name: value.detach() for name, value in algorithm.template.named_parameters()}
    return _classifiers(algorithm, model, images[: CLIENTS * each], labels, known, generator)


def _view(
    algorithm: ExampleAlgorithm,
    model: dict[str, Tensor],
    records: Tensor,
    labels: Tensor,
    examples: Tensor,
    auxiliary: dict[str, Tensor],
    generator: torch.Generator,
) -> RoundView:
    """Clients with ``examples (V, N)`` of a pool, padded with -1."""
    return RoundView(
        round=0,
        pseudonyms=torch.arange(len(examples)),
        example_counts=(examples >= 0).sum(1),
        deltas=algorithm.simulate_examples(model, records, labels, examples, generator=generator),
        model=model,
        algorithm=algorithm,
        auxiliary=auxiliary,
    )


def _truth(records: list[Tensor], grid: Grid | None = None) -> dict[str, Tensor]:
    """Salted hashes of each client's records, rounded to a grid, and the records themselves."""
    salts = torch.arange(len(records) * 16, dtype=torch.uint8).reshape(-1, 16)
    hashes = [record_hashes(own, salt, grid) for own, salt in zip(records, salts, strict=True)]
    truth = {
        "record_hash": pad_sequence(hashes, batch_first=True),
        "record_salt": salts,
        "records": pad_sequence(records, batch_first=True),
    }
    if grid is not None:
        step, origin = grid
        truth[RECORD_STEP] = step.expand(len(records), *step.shape)
        truth[RECORD_ORIGIN] = origin.expand(len(records), *origin.shape)
    return truth
