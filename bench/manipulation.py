"""Indirect manipulation at the paper's size where there is a GPU, at a thousandth of it elsewhere."""

import tempfile
import time
from pathlib import Path

import torch

from bench.measure import Measure
from datamodules.image_set import Crop, GeneratedImages
from modules.feature_extractors import extractor
from modules.indirect_manipulation import PixelSearch
from modules.perturbed_images import Perturbation, perturb


def manipulation_times() -> list[Measure]:
    """Images per second and peak memory of ResNet18 (random weights) on generated images, writing of PNG included."""
    gpu = torch.cuda.is_available()
    count, steps, crop, batch = (5000, 500, None, 256) if gpu else (16, 20, Crop(64, 64), 8)
    source = GeneratedImages(count=count, size=256 if gpu else 64)
    network = extractor("resnet18", weights="random", crop=crop)
    recipe = Perturbation(search=PixelSearch(steps=steps, enough=0.0))
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        perturb(source, range(count), network, recipe, Path(folder) / "images", batch_size=batch)
        rate = count / (time.perf_counter() - start)
    pixels = network.transform.crop.size
    job = f"manipulation, {count} images of {pixels} x {pixels}, {steps} steps"
    measures = [Measure(job, "resnet18", rate, "images/s")]
    if gpu:
        peak = max(torch.cuda.max_memory_allocated(number) for number in range(torch.cuda.device_count()))
        measures.append(Measure(job, "peak memory of a GPU", peak / 2**30, "GiB"))
    return measures
