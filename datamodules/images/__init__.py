"""Data sets of images: with labels, and with users who vote for some of them."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.datamodules.images.base import ClassificationDataModule as ClassificationDataModule
    from fedleak.datamodules.images.cifar10 import CIFAR10 as CIFAR10
    from fedleak.datamodules.images.cifar10_photos import CIFAR10Photos as CIFAR10Photos
    from fedleak.datamodules.images.digits import Digits as Digits
    from fedleak.datamodules.images.fer import FER as FER
    from fedleak.datamodules.images.imagenet import ImageNet as ImageNet
    from fedleak.datamodules.images.mnist import MNIST as MNIST
    from fedleak.datamodules.images.mnist import FashionMNIST as FashionMNIST
    from fedleak.datamodules.images.skin_cancer import SkinCancer as SkinCancer
    from fedleak.datamodules.images.synthetic_features import SyntheticFeatures as SyntheticFeatures
    from fedleak.datamodules.images.synthetic_images import SyntheticImages as SyntheticImages
    from fedleak.datamodules.images.voters import ImageVoters as ImageVoters
    from fedleak.datamodules.images.voters import SyntheticPhotos as SyntheticPhotos
    from fedleak.datamodules.images.voters import Voters as Voters
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "ClassificationDataModule": "fedleak.datamodules.images.base",
            "CIFAR10": "fedleak.datamodules.images.cifar10",
            "CIFAR10Photos": "fedleak.datamodules.images.cifar10_photos",
            "Digits": "fedleak.datamodules.images.digits",
            "FER": "fedleak.datamodules.images.fer",
            "ImageNet": "fedleak.datamodules.images.imagenet",
            "MNIST": "fedleak.datamodules.images.mnist",
            "FashionMNIST": "fedleak.datamodules.images.mnist",
            "SkinCancer": "fedleak.datamodules.images.skin_cancer",
            "SyntheticFeatures": "fedleak.datamodules.images.synthetic_features",
            "SyntheticImages": "fedleak.datamodules.images.synthetic_images",
            "ImageVoters": "fedleak.datamodules.images.voters",
            "SyntheticPhotos": "fedleak.datamodules.images.voters",
            "Voters": "fedleak.datamodules.images.voters",
        },
    )
