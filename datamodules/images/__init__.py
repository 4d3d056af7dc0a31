"""Data sets of images: with labels, and with users who vote for some of them."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from datamodules.images.base import ClassificationDataModule as ClassificationDataModule
    from datamodules.images.cifar10 import CIFAR10 as CIFAR10
    from datamodules.images.cifar10_photos import CIFAR10Photos as CIFAR10Photos
    from datamodules.images.digits import Digits as Digits
    from datamodules.images.fer import FER as FER
    from datamodules.images.imagenet import ImageNet as ImageNet
    from datamodules.images.mnist import MNIST as MNIST
    from datamodules.images.mnist import FashionMNIST as FashionMNIST
    from datamodules.images.skin_cancer import SkinCancer as SkinCancer
    from datamodules.images.synthetic_features import SyntheticFeatures as SyntheticFeatures
    from datamodules.images.synthetic_images import SyntheticImages as SyntheticImages
    from datamodules.images.voters import ImageVoters as ImageVoters
    from datamodules.images.voters import SyntheticPhotos as SyntheticPhotos
    from datamodules.images.voters import Voters as Voters

__all__ = exports(__name__)
