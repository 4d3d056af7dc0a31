"""Modules that are not federated: a model of pooled data, and a network for features."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.modules.references.central import CentralFNCF as CentralFNCF
    from fedleak.modules.references.feature_network import FeatureNetwork as FeatureNetwork

__all__ = exports(__name__)
