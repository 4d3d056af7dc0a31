"""The iteration ends where the two equations of the likelihood hold."""

import torch

from fedleak.attacks.identifiability.likelihood import PACLikelihood
from fedleak.attacks.identifiability.pac import VectorMessages
from fedleak.core.seeding import generator_for


def test_the_vector_is_the_mean_with_the_expected_labels() -> None:
    generator, noise = generator_for(0, "likelihood"), 1.0
    updates = torch.randint(1, 4, (3, 30), generator=generator).double()
    labels = torch.where(torch.rand(3, 30, generator=generator) < 0.3, 1.0, -1.0)
    drawn = torch.randn(3, 31, 4, generator=generator, dtype=torch.float64)
    sums = (labels * updates)[..., None] * drawn[:, :1] + noise * updates.sqrt()[..., None] * drawn[:, 1:]
    messages = VectorMessages(sums, updates, torch.ones(3), 1.0)
    vectors, votes = PACLikelihood(iterations=500).up_to_sign(messages, noise)
    likes = ((votes + 30) / 2 + 1) / 32  # with one more item of each kind
    expected = torch.tanh(torch.einsum("vrd,vd->vr", sums, vectors) / noise**2 + likes.logit()[:, None] / 2)
    torch.testing.assert_close(votes, expected.sum(1), rtol=2e-3, atol=0)
    mean = torch.einsum("vr,vrd->vd", expected, sums) / updates.sum(1, keepdim=True)
    torch.testing.assert_close(vectors, mean, rtol=0, atol=1e-3)
