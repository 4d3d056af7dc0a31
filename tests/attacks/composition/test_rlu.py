"""RLU is the linear system of soft labels, averaged over the steps."""

from fedleak.attacks.composition.label_inference import SoftLabels
from fedleak.attacks.composition.rlu import RLU
from fedleak.client.engine.local_hyperparameters import LocalTraining
from tests.composition_toys import estimate, l1, views


def test_a_single_step_has_one_softmax_output_and_needs_no_search() -> None:
    (view,), true = views(LocalTraining(optimizer="sgd", learning_rate=0.1))
    soft, rlu = (estimate(attack, view).proportions for attack in (SoftLabels(), RLU()))
    assert l1(soft, rlu) < 0.02
    assert l1(rlu, true) < 0.05


def test_over_several_steps_the_logits_shift_with_the_squared_norm_of_the_mean_feature() -> None:
    (view,), true = views(LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=20, epochs=2))
    soft, rlu = (estimate(attack, view).proportions for attack in (SoftLabels(), RLU()))
    assert l1(rlu, true) < 0.85 * l1(soft, true)
