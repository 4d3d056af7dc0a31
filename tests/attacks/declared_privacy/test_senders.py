import torch

from fedleak.attacks.declared_privacy.senders import Senders
from tests.attacks.runs import plain_view


def test_sum_that_is_listed_for_several_clients_is_one_message() -> None:
    view = plain_view(4, deltas={"w": torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])})
    senders = Senders(sums=True)
    chosen, numbers = senders.add(view)
    assert chosen.pseudonyms.tolist() == [0, 2]
    assert numbers.tolist() == [0, 1]
    assert senders.places.tolist() == [0, 0, 1, 0]
    assert senders.people.tolist() == [0, 1, 2, 3]
    again, none = senders.add(view.select(torch.tensor([3])))
    assert (again.victims, len(none), senders.messages) == (0, 0, 2)


def test_equal_messages_of_single_clients_are_two() -> None:
    view = plain_view(2, deltas={"w": torch.ones(2, 3)})
    senders = Senders(sums=False)
    assert senders.add(view)[1].tolist() == [0, 1]
    assert senders.add(view)[1].tolist() == [2, 3]
