"""Attacks on attributes: what is the person behind an update like?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.attributes.baselines import ExampleCounts as ExampleCounts
    from fedleak.attacks.attributes.baselines import MajorityValue as MajorityValue
    from fedleak.attacks.attributes.forest import PropertyForest as PropertyForest
    from fedleak.attacks.attributes.lda import AttributeLDA as AttributeLDA
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "ExampleCounts": "fedleak.attacks.attributes.baselines",
            "MajorityValue": "fedleak.attacks.attributes.baselines",
            "PropertyForest": "fedleak.attacks.attributes.forest",
            "AttributeLDA": "fedleak.attacks.attributes.lda",
        },
    )
