"""Modules that are not federated: a model of pooled data, and a network for features."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.modules.references.central import CentralFNCF as CentralFNCF
    from fedleak.modules.references.feature_network import FeatureNetwork as FeatureNetwork
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "CentralFNCF": "fedleak.modules.references.central",
            "FeatureNetwork": "fedleak.modules.references.feature_network",
        },
    )
