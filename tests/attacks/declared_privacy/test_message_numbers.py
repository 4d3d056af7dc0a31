"""Numbers of messages in a row, of which blocks of the tests lie within a message."""

import torch

from fedleak.attacks.declared_privacy.message_numbers import in_a_row


def test_messages_in_a_row_are_cut_to_whole_blocks() -> None:
    x = torch.arange(200).reshape(2, 100)  # blocks have 32 numbers
    assert torch.equal(in_a_row(x), torch.cat([x[0, :96], x[1, :96]])[None])
    assert torch.equal(in_a_row(x[:, :20]), x[:, :20].reshape(1, 40))
