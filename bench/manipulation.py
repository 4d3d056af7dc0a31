"""Indirect manipulation at the paper's size on a GPU, at a thousandth of it on a CPU."""

import tempfile
import time
from pathlib import Path

import torch

from bench.measure import Measure
from fedleak.datamodules.images.image_set import GeneratedImages
from fedleak.modules.image_features.feature_extractors import Extractor
from fedleak.modules.image_features.gallery import Gallery
from fedleak.server.feature_noise import FeatureNoise, PixelSearch


def manipulation_times() -> list[Measure]:
    """Images per second and peak memory of ResNet18 (random weights) on generated images, PNG files included."""
    gpu = torch.cuda.is_available()
    count, steps, crop, batch = (5000, 500, None, 256) if gpu else (16, 20, 64, 8)
    source = GeneratedImages(count=count, size=256 if gpu else 64)
    with tempfile.TemporaryDirectory() as folder:
        gallery = Gallery(
            photos=source,
            numbers=list(range(count)),
            extractor=Extractor(weights="random", crop=crop),
            manipulation=FeatureNoise(search=PixelSearch(steps=steps, enough=0.0)),
            partitions=2,
            seed=0,
            folder=Path(folder),
            batch_size=batch,
        )
        pixels = gallery.network.transform.crop.size
        start = time.perf_counter()
        gallery.features(torch.device("cuda" if gpu else "cpu"))
        rate = count / (time.perf_counter() - start)
    job = f"manipulation, {count} images of {pixels} x {pixels}, {steps} steps"
    measures = [Measure(job, "resnet18", rate, "images/s")]
    if gpu:
        peak = max(torch.cuda.max_memory_allocated(number) for number in range(torch.cuda.device_count()))
        measures.append(Measure(job, "peak memory of a GPU", peak / 2**30, "GiB"))
    return measures
