"""Training examples are in the ground truth, as salted hashes or themselves, and never in what the server saw."""

import torch
from safetensors.torch import load
from torch import Tensor

from callbacks.recorded_content import RecordedContent
from datamodules.cohort import Cohort
from defenses.base import Defense, Update
from defenses.secure_aggregation import SecureSum
from modules.learners.image_classifier import FederatedClassifier
from protocol.record_hash import record_hashes
from tests.composition_toys import NETWORK, SGD

COUNTS = (3, 5, 2, 4)


Made = tuple[Cohort, dict[str, Tensor], dict[str, Tensor]]


def shards(*, defenses: tuple[Defense, ...] = (), keep: bool = False) -> Made:
    """A cohort, and what a round of it leaves in rounds/ and truth/."""
    learner = FederatedClassifier(
        num_classes=3, image_shape=(1, 12, 12), network=NETWORK, local=SGD, defenses=list(defenses)
    )
    levels = torch.randint(256, (4, 5, 1, 12, 12), generator=torch.Generator().manual_seed(0))
    labels = torch.randint(3, (4, 5), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(5) < torch.tensor(COUNTS)[:, None]
    cohort = Cohort(0, torch.tensor([7, 8, 9, 11]), {"image": levels / 255, "label": labels}, mask)
    model = learner.public_parameters()
    deltas = {name: torch.zeros(4, *value.shape) for name, value in model.items()}
    record = learner._record(cohort, Update(deltas, {}, clients=cohort.clients), model)
    files = RecordedContent(None, "float32", keep_records=keep).shards(record, 0, learner)
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
    cohort, seen, truth = shards(keep=True)
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
        assert torch.equal(hashes[place][hashes[place].any(1)], expected)
