"""Training examples are in the ground truth, as salted hashes or themselves, and never in what the server saw."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from fedleak.callbacks.recorded_content import RecordedContent
from fedleak.client.cohort import Cohort
from fedleak.core.errors import InputError
from fedleak.core.record_hash import record_hashes
from fedleak.defenses.base import Defense, Update
from fedleak.defenses.secure_aggregation import SecureSum
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.training.candidates import CandidateOptions, CandidatePool
from fedleak.training.data import FederatedDataModule
from fedleak.training.server_view import record_round
from tests.composition_toys import NETWORK, SGD

COUNTS = (3, 5, 2, 4)


def learner_with(defenses: Sequence[Defense] = ()) -> FederatedClassifier:
    return FederatedClassifier(
        num_classes=3, image_shape=(1, 12, 12), network=NETWORK, local=SGD, defenses=list(defenses)
    )


Made = tuple[Cohort, dict[str, Tensor], dict[str, Tensor]]


def shards(*, defenses: Sequence[Defense] = (), **options: Any) -> Made:
    """A cohort, and what a round of it leaves in rounds/ and truth/; a recording with candidates has drawn them."""
    learner = learner_with(defenses)
    levels = torch.randint(256, (4, 5, 1, 12, 12), generator=torch.Generator().manual_seed(0))
    labels = torch.randint(3, (4, 5), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(5) < torch.tensor(COUNTS)[:, None]
    cohort = Cohort(0, torch.tensor([7, 8, 9, 11]), {"image": levels / 255, "label": labels}, mask)
    model = learner.public_parameters()
    deltas = {name: torch.zeros(4, *value.shape) for name, value in model.items()}
    record = record_round(learner, None, cohort, Update(deltas, {}, clients=cohort.clients), model)
    content = RecordedContent(None, "float32", **options)
    content.auxiliary(Source(), learner)
    files = content.shards(record, 0, learner)
    return cohort, *(load(next(file for name, file in files.items() if kind in name)) for kind in ("rounds/", "truth/"))


def test_the_truth_holds_salted_hashes_and_no_image() -> None:
    cohort, seen, truth = shards()
    assert not [name for name in seen if "record" in name]
    assert "client/records" not in truth
    for place, client in enumerate(truth["clients"].tolist()):
        own = int((cohort.clients == client).nonzero())
        count = COUNTS[own]
        hashes = record_hashes(cohort.examples["image"][own, :count], truth["client/record_salt"][place])
        assert torch.equal(truth["client/record_hash"][place, :count], hashes)
        assert not bool(truth["client/record_hash"][place, count:].any())
        assert torch.equal(truth["client/record_labels"][place, :count], cohort.examples["label"][own, :count])
    assert len({tuple(salt) for salt in truth["client/record_salt"].tolist()}) == 4


def test_images_are_kept_on_request() -> None:
    cohort, seen, truth = shards(keep_records=True)
    assert not [name for name in seen if "record" in name]
    own = int((cohort.clients == truth["clients"][0]).nonzero())
    count = COUNTS[own]
    assert torch.equal(truth["client/records"][0, :count], cohort.examples["image"][own, :count])
    assert not bool(truth["client/records"][0, count:].any())


def test_a_secure_sum_holds_the_examples_of_all_its_clients() -> None:
    cohort, _, truth = shards(defenses=(SecureSum(participants=2),))
    hashes = truth["client/record_hash"]
    assert len(hashes) == 2
    for place, client in enumerate(truth["clients"].tolist()):
        first = int((cohort.clients == client).nonzero())
        real = torch.cat([cohort.examples["image"][c, : COUNTS[c]] for c in (first, first + 1)])
        expected = record_hashes(real, truth["client/record_salt"][place])
        assert torch.equal(hashes[place][hashes[place].bool().any(1)], expected)


def pool() -> CandidatePool:
    return CandidatePool(torch.rand(6, 1, 12, 12), torch.arange(6) % 3, torch.tensor([7, -1, 8, 9, -1, 11]))


class Plain(FederatedDataModule):
    """Data that declare nothing beyond what is required."""

    @property
    def num_clients(self) -> int:
        return 12

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"name": "plain", "sha256": ""}

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        raise NotImplementedError


class Source(Plain):
    """Data with candidates."""

    def candidates(self, options: CandidateOptions) -> CandidatePool:
        return pool()


class Owned(Plain):
    """Devices of the adversary's own whose examples are not given."""

    client_users = torch.zeros(12, dtype=torch.int64)
    client_known = torch.ones(12, dtype=torch.bool)


class Places(Plain):
    """Clients with items, in a class that is no recommender of ours."""

    num_items = 3

    def user_items(self) -> list[npt.NDArray[np.int64]]:
        return [np.array([client % 3]) for client in range(12)]


def recorded(data: FederatedDataModule | None, **options: Any) -> dict[str, Tensor]:
    content = RecordedContent(None, "float32", **options).auxiliary(data, learner_with())
    return {} if content is None else load(content)


def test_a_data_set_offers_nothing_by_default_and_any_data_set_may_have_items() -> None:
    assert recorded(None) == recorded(Plain()) == {}
    held = recorded(Places())["popularity_of_others"]
    assert held.shape == (10, 3)
    assert (held.sum(1) <= 12).all()


def test_known_devices_without_their_examples_are_refused() -> None:
    with pytest.raises(InputError, match="client_examples"):
        recorded(Owned())
    with pytest.raises(InputError, match="client_users"):
        recorded(type("NoUsers", (Owned,), {"client_users": None})())


@pytest.mark.parametrize("defenses", [(), (SecureSum(participants=2),)])
def test_candidates_are_public_and_their_holders_are_truth(defenses: tuple[Defense, ...]) -> None:
    options = {"candidates": CandidateOptions(per_client=1)}
    held = recorded(Source(), **options)
    assert set(held) == {"candidates", "candidate_labels"}
    _, seen, truth = shards(defenses=defenses, **options)
    assert not [name for name in seen if "member" in name]
    own = {7: {7}, 8: {8}, 9: {9}, 11: {11}} if not defenses else {7: {7, 8}, 9: {9, 11}}
    original = pool()
    for client, member in zip(truth["clients"].tolist(), truth["client/member"], strict=True):
        labels = held["candidate_labels"][member].tolist()
        expected = [int(original.labels[(original.holders == holder).nonzero()[0, 0]]) for holder in own[client]]
        assert sorted(labels) == sorted(expected)


def test_candidates_need_records_with_classes() -> None:
    for data, word in ((Plain(), "labelled images"), (None, "candidates")):
        with pytest.raises(InputError, match=word):
            recorded(data, candidates=CandidateOptions(per_client=1))


def test_a_secure_sum_names_its_participants_by_pseudonym_and_holds_whose_candidates_are_whose_as_truth() -> None:
    options = {"candidates": CandidateOptions(per_client=1)}
    for targets in (1, 2):
        _, seen, truth = shards(defenses=(SecureSum(participants=2, targets=targets),), **options)
        assert seen["participants"].shape == (2 * targets, 2)
        assert bool((seen["participants"].diff(dim=1) > 0).all())  # the order of the cohort would name clients
        assert bool((seen["participants"] == seen["clients"][:, None]).any(1).all())
        names = dict(zip(truth["clients"].tolist(), seen["clients"].tolist(), strict=True))
        together = {7: (7, 8), 8: (7, 8), 9: (9, 11), 11: (9, 11)}
        for client, own in zip(truth["clients"].tolist(), seen["participants"].tolist(), strict=True):
            assert all(names[one] in own for one in together[client] if one in names)
        assert truth["client/own_member"].sum(1).tolist() == [1] * len(truth["clients"])
        assert truth["client/member"].sum(1).tolist() == [2] * len(truth["clients"])
        assert bool((truth["client/member"] | ~truth["client/own_member"]).all())
        assert not [name for name in seen if "member" in name]


@pytest.mark.parametrize("defenses", [(), (SecureSum(participants=1),)])
def test_messages_of_single_clients_have_no_participants(defenses: tuple[Defense, ...]) -> None:
    _, seen, truth = shards(defenses=defenses, candidates=CandidateOptions(per_client=1))
    assert "participants" not in seen
    assert "client/own_member" not in truth
