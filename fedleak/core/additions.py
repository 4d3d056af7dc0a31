"""The four folders of additions at the top of the checkout, which the kernel searches: it names nothing in them."""

import importlib
from types import ModuleType

ROOMS = ("attacks", "callbacks", "datamodules", "modules")
"""Names of the folders, each a package below ``fedleak``."""


def room(path: str) -> ModuleType:
    """The package of a folder of additions, such as ``attacks`` or ``modules.learners``, which is imported.

    It is to be searched, e.g. by `fedleak.core.class_paths.classes_in`. No other module of the kernel imports an
    addition; an import contract and a test hold that.

    >>> room("attacks").__name__
    'fedleak.attacks'
    """
    if path.partition(".")[0] not in ROOMS:
        raise ValueError(f"expected a folder of additions, one of {', '.join(ROOMS)}; got {path}")
    return importlib.import_module(f"fedleak.{path}")
