"""Attacks on attributes: what is the person behind an update like?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.attributes.baselines import ExampleCounts as ExampleCounts
    from attacks.attributes.baselines import MajorityValue as MajorityValue
    from attacks.attributes.forest import PropertyForest as PropertyForest
    from attacks.attributes.lda import AttributeLDA as AttributeLDA

__all__ = exports(__name__)
