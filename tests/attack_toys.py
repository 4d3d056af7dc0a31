"""A leaky toy for every question: what the server sees of a few clients, and the ground truth.

`TOYS` is where tests/attacks/test_every_attack.py looks for one that an attack can read.
"""

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.declared_privacy import toy as declared_privacy_toy
from fedleak.attacks.images import toy as images_toy
from fedleak.attacks.linkability import toy as linkability_toy
from fedleak.attacks.membership import toy as membership_toy
from fedleak.attacks.ranking import toy as ranking_toy
from fedleak.attacks.reconstruction import toy as reconstruction_toy
from fedleak.attacks.trees import toy as trees_toy
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.client.text import TextOptions
from fedleak.core.history import History
from fedleak.core.record_hash import record_hashes
from fedleak.core.seeding import generator_for
from fedleak.core.view import HOLDOUT, ITEM_EMBEDDING, USERS, View
from fedleak.datamodules.devices.device_split import Devices
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.defenses.secure_aggregation import SecureSum
from fedleak.evaluation.message_selection import client_truth
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.modules.learners.text import FederatedText
from fedleak.recordings.recording import Recording
from fedleak.server.codebook import Codebook
from fedleak.server.imprint import Imprint
from fedleak.server.noise_injection import NoiseInjection
from fedleak.training.candidates import CandidateOptions
from tests import (
    adapter_toys,
    attribute_toys,
    composition_toys,
    convolution_toys,
    deanonymization_toys,
    inversion_toys,
    memory_toys,
    output_toys,
    published_text_toys,
    ranking_toys,
    reconstruction_toys,
    sum_toys,
    tables_of_people,
    text_toys,
    toys,
    transformer_toys,
    vector_toys,
    word_toys,
)
from tests.membership_toys import toy as membership

ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)
Toy = tuple[View, dict[str, Tensor]]
"""What the server sees, and the ground truth by name."""


def recommender() -> Toy:
    view, labels = toys.leaky_view(victims=6)
    return view, {"labels": labels}


def rankers() -> Toy:
    """Clients who click in lists of documents that the server made distinguishable by noise."""
    return _ranked(NoiseInjection())


def rankers_with_codes() -> Toy:
    """Clients who click in lists of documents that the server marked by a code."""
    return _ranked(Codebook(knows="lists"))


def _ranked(manipulation: NoiseInjection | Codebook) -> Toy:
    data = ranking_toys.source()
    per_client = isinstance(manipulation, Codebook)
    learner = ranking_toys.ranker(data, manipulation=manipulation, ranker_per_client=per_client)
    with tempfile.TemporaryDirectory() as folder:
        recording = ranking_toys.record(Path(folder), data, learner)
        view = ranking_toys.first_view(recording)
        return view, {"labels": recording.truth(view)["labels"]}


def classifiers() -> Toy:
    (view,), _ = composition_toys.views()
    return view, {"class_counts": composition_toys.source().class_counts()}


def classifiers_of_one_step() -> Toy:
    (view,), _ = composition_toys.views(ONE_STEP)
    return view, {"class_counts": composition_toys.source().class_counts()}


def yes_or_no() -> Toy:
    return output_toys.toy()


def numbers() -> Toy:
    return output_toys.toy(LocalTraining(optimizer="sgd", learning_rate=0.01), binary=False)


def members_of_texts() -> Toy:
    return adapter_toys.toy(adapter_toys.EPOCH)


def devices() -> Toy:
    view, users = deanonymization_toys.joined()
    return view, {"user": users[: view.victims], "known_user": users[view.victims :]}


def devices_and_a_hold_out() -> Toy:
    """As `devices`; half of the known ones are only there to say what anybody writes."""
    view, truth = devices()
    assert isinstance(view, History)
    assert view.known is not None
    in_hold_out = view.known.priors[USERS] >= deanonymization_toys.WRITERS // 2
    known = dataclasses.replace(view.known, priors={**view.known.priors, HOLDOUT: in_hold_out})
    return dataclasses.replace(view, known=known), truth


def few_images() -> Toy:
    """Three clients of a smooth network with two images each."""
    classes = int(reconstruction_toys.few_images().auxiliary()["label"].max()) + 1
    network = ClassifierOptions(name="mlp", hidden=32, activation="tanh")
    shape = reconstruction_toys.SHAPE
    learner = ImageClassifierAlgorithm(network=network, image_shape=shape, num_classes=classes, local=ONE_STEP)
    built = build_classifier(network, image_shape=shape, classes=classes, generator=generator_for(0, "model"))
    model = {name: value.detach() for name, value in built.named_parameters()}
    view, images = reconstruction_toys.view_of_images(learner, model)
    return view, _hashed(list(images))


def convolved_images() -> Toy:
    """Two clients of a network of convolutions with two images each."""
    view, images = convolution_toys.toy()
    return view, _hashed(list(images))


def imprinted_images() -> Toy:
    """Sums of four clients with five images each, of a first layer that the server made to keep images apart."""
    split = ClientSplit(clients=8, examples_per_client=5)
    data = SyntheticImages(split=split, train_per_class=60, auxiliary_per_class=30, noise=0.3, seed=1)
    learner = FederatedClassifier(
        network=ClassifierOptions(name="mlp", hidden=120),
        local=ONE_STEP,
        defenses=[SecureSum(participants=4)],
        manipulation=Imprint(statistic="random"),
    )
    with tempfile.TemporaryDirectory() as folder:
        toys.quiet_trainer(1, Path(folder), DeltaRecorder()).fit(learner, datamodule=data)
        recording = Recording(Path(folder) / "deltas")
        view = next(iter(recording.views(learner=None)))
        return view, recording.truth(view)


def private_vectors() -> Toy:
    return vector_toys.campaign(rate=0.2, interactions=40, noise=0.0)


def vectors_against_the_catalogue() -> Toy:
    """As `private_vectors`; clients dislike most items, so that the items' mean says which sign is whose."""
    view, truth = vector_toys.campaign(rate=0.2, interactions=40, noise=0.0)
    users = truth["user_vector"]
    away = users.mean(0) + 1
    sign = torch.where((users @ away < 0)[:, None], -1.0, 1.0)
    model = {ITEM_EMBEDDING: view.model[ITEM_EMBEDDING] - 3 * away}
    deltas = {ITEM_EMBEDDING: view.deltas[ITEM_EMBEDDING] * sign[:, None]}
    return dataclasses.replace(view, model=model, deltas=deltas), {**truth, "user_vector": users * sign}


def vectors_of_one_taste() -> Toy:
    """As `private_vectors`; clients agree on most items, so that their messages say which sign is whose."""
    return vector_toys.agreeing(vector_toys.campaign(rate=0.6, interactions=100, noise=0.05, victims=60), taste=0.7)


def tables() -> Toy:
    """Rows of people, of which two clients have four each."""
    columns, values, labels = tables_of_people.people(8)
    return tables_of_people.people_view(values, labels, columns, clients=2)


def sentences(kind: str) -> Toy:
    """Clients of a language model with a few sentences each."""
    view = text_toys.seen(kind)
    rows = [torch.tensor(sentence) for client in text_toys.CLIENTS for sentence in client]
    padded = pad_sequence(rows, batch_first=True)
    counts = [len(client) for client in text_toys.CLIENTS]
    return view, _hashed(list(torch.split(padded, counts)))


def adapters() -> Toy:
    """Clients that fine-tune adapters of a tiny Llama on three sentences each."""
    tokens = transformer_toys.texts(2, 3)
    learner = transformer_toys.algorithm(rank=16)
    view = transformer_toys.view_of(learner, tokens, transformer_toys.moved_model(rank=16))
    return view, _hashed(list(tokens)) | {"words": tokens.flatten(1)}


def memory() -> Toy:
    """Clients that fine-tune an adapter which the server made to keep texts."""
    tokens = transformer_toys.texts(2, 6, memory_toys.WORDS, seed=3)
    view = transformer_toys.view_of(memory_toys.fine_tuned(), tokens, memory_toys.memory_model(12))
    return view, _hashed(list(tokens))


def _hashed(records: list[Tensor]) -> dict[str, Tensor]:
    """The ground truth of clients' records: salted hashes, and the records themselves."""
    most = max(len(rows) for rows in records)
    salts = torch.arange(len(records) * 16, dtype=torch.uint8).reshape(-1, 16)
    hashes = torch.zeros(len(records), most, 32, dtype=torch.uint8)
    values = torch.zeros(len(records), most, *records[0].shape[1:], dtype=records[0].dtype)
    for client, rows in enumerate(records):
        hashes[client, : len(rows)] = record_hashes(rows, salts[client])
        values[client, : len(rows)] = rows
    return {"record_hash": hashes, "record_salt": salts, "records": values}


def sums_of_classes() -> Toy:
    """Sums of four of twelve classifiers' updates, in sixteen rounds."""
    with tempfile.TemporaryDirectory() as folder:
        defenses = [sum_toys.sums(4)]
        recording = sum_toys.record(Path(folder), sum_toys.digits(), rounds=16, defenses=defenses)
        return _all_rounds(recording, "class_counts", "clients")


def sums_of_records() -> Toy:
    """Sums of four of twelve classifiers' updates, and a pool of the records of all."""
    split = ClientSplit(scheme="iid", clients=12, examples_per_client=10)
    data = sum_toys.digits(split=split, auxiliary_per_class=0)
    pool = CandidateOptions(per_client=10)
    with tempfile.TemporaryDirectory() as folder:
        recording = sum_toys.record(
            Path(folder), data, rounds=12, hidden=32, defenses=[sum_toys.sums(4)], candidates=pool
        )
        return _all_rounds(recording, "own_member", "clients")


def sums_of_words() -> Toy:
    """Sums of three of eight writers' updates."""
    data = SyntheticPosts(writers=8, posts=6, vocabulary=80, clients_per_round=3, devices=Devices(adversary=False))
    learner = FederatedText(
        network=TextOptions(vocabulary=80, embedding=8, hidden=8),
        local=LocalTraining(learning_rate=1.0, batch_size=None),
        defenses=(sum_toys.sums(3),),
    )
    with tempfile.TemporaryDirectory() as folder:
        deltas = Path(folder) / "deltas"
        recorder = DeltaRecorder(directory=str(deltas), parameters=["embedding.weight", "output.*"])
        toys.quiet_trainer(14, Path(folder), recorder).fit(learner, datamodule=data)
        return _all_rounds(Recording(deltas), "words", "clients")


def _all_rounds(recording: Recording, *truth: str) -> Toy:
    view = sum_toys.history_of(recording)
    in_memory = dataclasses.replace(view, by_round=dict(view.by_round), read_parts=None, round_models={})
    return in_memory, client_truth(recording, view, truth)


TOYS: dict[str, Callable[[], Toy]] = {
    "recommender": recommender,
    "voters": images_toy.toy,
    "rankers": rankers,
    "rankers with codes": rankers_with_codes,
    "classifiers": classifiers,
    "classifiers of one step": classifiers_of_one_step,
    "yes or no": yes_or_no,
    "numbers": numbers,
    "members": membership,
    "members of texts": members_of_texts,
    "devices": devices,
    "devices and a hold-out": devices_and_a_hold_out,
    "marked documents": membership_toy.toy,
    "click metrics": functools.partial(ranking_toy.toy, "metrics"),
    "private vectors": private_vectors,
    "vectors against the catalogue": vectors_against_the_catalogue,
    "vectors of one taste": vectors_of_one_taste,
    "linked messages": linkability_toy.toy,
    "attributes": attribute_toys.toy,
    "words": word_toys.words_seen,
    "images": inversion_toys.server_view,
    "imprinted images": imprinted_images,
    "few images": few_images,
    "convolved images": convolved_images,
    "heads": functools.partial(reconstruction_toy.toy, "head"),
    "tables": tables,
    "sentences of an LSTM": functools.partial(sentences, "lstm"),
    "sentences of a decoder": functools.partial(sentences, "decoder"),
    "adapters": adapters,
    "memory": memory,
    "imprinted texts": published_text_toys.imprinted_texts,
    "short texts": published_text_toys.short_texts,
    "sums of classes": sums_of_classes,
    "sums of records": sums_of_records,
    "sums of words": sums_of_words,
    "canaries": declared_privacy_toy.toy,
    "trees": trees_toy.toy,
    "trees of several rounds": trees_toy.rounds_toy,
}
"""Each with the views of its clients' own updates; made when an attack first asks for it."""


@functools.cache
def toy(name: str) -> Toy:
    """The toy of a name."""
    return TOYS[name]()
