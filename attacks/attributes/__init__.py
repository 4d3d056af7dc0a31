"""Attacks on attributes: what is the person behind an update like?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.attributes.baselines import ExampleCounts as ExampleCounts
    from fedleak.attacks.attributes.baselines import MajorityValue as MajorityValue
    from fedleak.attacks.attributes.forest import PropertyForest as PropertyForest
    from fedleak.attacks.attributes.lda import AttributeLDA as AttributeLDA

__all__ = exports(__name__)
