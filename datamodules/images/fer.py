"""FER-2013 (Goodfellow 2013), faces by their expression: the challenge's CSV files, or Kaggle's folders."""

import functools
from collections.abc import Sequence

from datamodules.images.base import ClassificationDataModule, LabelledImages, split_test
from datamodules.images.fer_csv import FILES, SIZE, read_fer
from datamodules.images.image_files import files_by_class, read_images, trees
from protocol.errors import InputError

_PAGE = "https://www.kaggle.com/datasets/msambare/fer2013"
_TEST_FRACTION = 0.125


class FER(ClassificationDataModule):
    """Grey 48 x 48 faces of seven expressions, 28,709 and 7,178 for the test.

    Reads ``root/fer2013/``, in this order: ``fer2013.csv``, ``icml_face_data.csv``, ``train.csv`` (the challenge's test
    has no labels, so an eighth of this becomes the test), ``{train,test}/CLASS/*.jpg``, a zip file of that form.
    Some faces are in it more than once, also in training and test: copies of one can be with two clients.
    Classes are in the folders' order in every form, not in the CSV files'. The arguments are those of
    `ClassificationDataModule`.
    """

    name = "fer2013"
    folders = (name,)
    class_names: Sequence[str] = ("angry", "disgust", "fear", "happy", "neutral", "sad", "surprise")
    image_shape = (1, SIZE, SIZE)

    def read_train(self) -> LabelledImages:
        return self._read[0]

    def read_test(self) -> LabelledImages:
        return self._read[1]

    @functools.cached_property
    def _read(self) -> tuple[LabelledImages, LabelledImages]:
        folder = self.data_root() / self.name
        for layout in FILES:
            if (folder / layout.file).is_file():
                images, labels, training = read_fer(folder / layout.file, layout)
                whole = LabelledImages(images, labels)
                if layout.usage is None:
                    return split_test(whole, class_names=self.class_names, fraction=_TEST_FRACTION, seed=self.seed)
                return whole.select(training.nonzero().flatten()), whole.select((~training).nonzero().flatten())
        for tree in trees(folder) if folder.is_dir() else []:
            parts = tree.joinpath("train"), tree.joinpath("test")
            if all(part.is_dir() for part in parts):
                found = [files_by_class(part, self.class_names) for part in parts]
                train, test = (
                    LabelledImages(read_images(files, self.image_shape, resized=False, name=self.name), labels)
                    for files, labels in found
                )
                return train, test
        raise InputError(
            expected=f"FER-2013 at {folder}",
            found="neither train and test folders nor one of the CSV files",
            way_out=f"Fetch it from {_PAGE} and put it there.",
        )
