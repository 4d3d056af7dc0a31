"""Tiny files in every image set's real layout."""

import csv
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedleak.datamodules.images.fer import FER
from fedleak.datamodules.images.skin_cancer import SkinCancer

Bytes = npt.NDArray[np.uint8]
FER_CODES = {"angry": 0, "disgust": 1, "fear": 2, "happy": 3, "sad": 4, "surprise": 5, "neutral": 6}


def noise(count: int, *shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def jpeg(image: Bytes) -> bytes:
    content = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(content, "JPEG", quality=100)
    return content.getvalue()


def write_idx(root: Path, *, name: str = "MNIST", per_class: int = 12) -> None:
    folder = root / name / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for seed, part, count in ((0, "train", 10 * per_class), (1, "t10k", 30)):
        images, labels = noise(count, 28, 28, seed=seed), np.arange(count, dtype=np.uint8) % 10
        header = struct.pack(">IIII", 0x803, count, 28, 28)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels.tobytes())


def write_cifar(root: Path, *, per_file: int = 30) -> None:
    """The original files, opcode by opcode, because nothing here imports their format; their hashes are other ones."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate([*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]):
        pixels = noise(per_file, 3072, seed=seed).tobytes()
        data = b"cnumpy\nfrombuffer\nB" + struct.pack("<I", len(pixels)) + pixels + b"U\x05uint8\x86R"
        labels = b"](" + b"".join(b"K" + bytes([row % 10]) for row in range(per_file)) + b"e"
        (folder / name).write_bytes(b"\x80\x03}(U\x04data" + data + b"U\x06labels" + labels + b"u.")
    (folder / "batches.meta").write_bytes(b"\x80\x03}U\x0blabel_names](U\x03tenU\x05namese" + b"s.")


def bomb(folder: Path) -> bytes:
    """A file that makes a folder when CIFAR-10's reader opens it."""
    return b"cos\nmkdir\n(V" + str(folder).encode() + b"\ntR."


def class_tree(
    class_names: tuple[str, ...], shape: tuple[int, int, int], *, per_class: int, test_per_class: int = 2
) -> dict[str, bytes]:
    """Content by path of ``{train,test}/CLASS/*.jpg``."""
    counts = {"train": per_class, "test": test_per_class}
    return {
        f"{part}/{name}/{row:04}.jpg": jpeg(image)
        for part, count in counts.items()
        for number, name in enumerate(class_names)
        for row, image in enumerate(noise(count, *shape, seed=number + 100 * (part == "test")))
    }


def write_tree(folder: Path, tree: dict[str, bytes]) -> None:
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_zip(path: Path, tree: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in tree.items():
            file.writestr(name, content)


def fer_tree(*, per_class: int = 8) -> dict[str, bytes]:
    return class_tree(tuple(FER.class_names), (1, 48, 48), per_class=per_class)


def fer_rows(*, per_class: int = 8) -> list[dict[str, str]]:
    """Rows of fer2013.csv: every fourth image is for the test."""
    images = noise(7 * per_class, 2304)
    usage = ["Training", "Training", "PublicTest", "Training", "PrivateTest", "Training"]
    return [
        {"emotion": str(row % 7), "pixels": " ".join(map(str, image)), "Usage": usage[row // 7 % 6]}
        for row, image in enumerate(images)
    ]


def write_fer_csv(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    order = {
        "fer2013.csv": ["emotion", "pixels", "Usage"],
        "icml_face_data.csv": ["emotion", " Usage", " pixels"],
        "train.csv": ["emotion", "pixels"],
    }[path.name]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(order)
        writer.writerows([row[column.strip()] for column in order] for row in rows)


def skin_cancer_metadata(*, lesions: int = 70) -> list[tuple[str, str, str]]:
    """Lesion, image and kind: one to three images of a lesion, not in the order of their names."""
    random = np.random.default_rng(3)
    rows = [
        (f"HAM_{lesion:07}", SkinCancer.class_names[lesion % 7])
        for lesion in range(lesions)
        for _ in range(random.integers(1, 4))
    ]
    numbers = random.permutation(len(rows))
    return [(lesion, f"ISIC_{number:07}", kind) for number, (lesion, kind) in zip(numbers, rows, strict=True)]


def metadata_text(rows: list[tuple[str, str, str]]) -> str:
    """The metadata file; like the real one it has ages that are empty."""
    head = "lesion_id,image_id,dx,dx_type,age,sex,localization\n"
    return head + "".join(
        f"{lesion},{image},{kind},histo,{_patient(int(lesion[4:]))}\n" for lesion, image, kind in rows
    )


def _patient(lesion: int) -> str:
    """Age, sex and place of a lesion."""
    age = ("", "30.0", "45.0", "70.0")[lesion % 4]
    return f"{age},{('male', 'female')[lesion // 2 % 2]},{('back', 'foot', 'hand')[lesion % 3]}"


def skin_cancer_images(rows: list[tuple[str, str, str]]) -> dict[str, bytes]:
    """Content by name of file, wider than high as the real ones."""
    images = noise(len(rows), 3, 9, 12, seed=5)
    return {f"{name}.jpg": jpeg(image) for image, (_, name, _) in zip(images, rows, strict=True)}


def write_skin_cancer(root: Path) -> None:
    """Kaggle's layout, the images in two folders."""
    folder, rows = root / "ham10000", skin_cancer_metadata()
    images = skin_cancer_images(rows)
    halves = "HAM10000_images_part_1", "HAM10000_images_part_2"
    write_tree(folder, {f"{halves[row % 2]}/{name}": content for row, (name, content) in enumerate(images.items())})
    (folder / "HAM10000_metadata.csv").write_text(metadata_text(rows))
