"""Data sets of images: with labels, and with users who vote for some of them."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

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

__all__ = exports(__name__)
