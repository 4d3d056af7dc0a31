"""What a server may do besides averaging: a deviation is one file, and describes itself.

Its options are the fields of a frozen dataclass; what it does is pure functions of models and examples. What needs
Lightning or a data module calls them: the learners, the data modules and the callback `NoiseSearch`.
"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.server.deviation import Deviation as Deviation
    from fedleak.server.deviation import Notice as Notice
    from fedleak.server.feature_manipulation import FeatureManipulation as FeatureManipulation
    from fedleak.server.image_manipulation import ImageManipulation as ImageManipulation
    from fedleak.server.model_manipulation import ModelManipulation as ModelManipulation
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Deviation": "fedleak.server.deviation",
            "Notice": "fedleak.server.deviation",
            "FeatureManipulation": "fedleak.server.feature_manipulation",
            "ImageManipulation": "fedleak.server.image_manipulation",
            "ModelManipulation": "fedleak.server.model_manipulation",
        },
    )
