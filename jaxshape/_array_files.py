"""Arrays in the files of the command line: an npz of several, or an npy of each."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ._error import JaxshapeError
from ._file import whole


def flat(outputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """One array for each tensor in `outputs`, in a dtype that NumPy's files know.

    The elements of a sequence are named after their place; an empty optional is left out.

    >>> flat({"y": [np.zeros(2, "f"), np.ones(3, "f")], "z": None}).keys()
    dict_keys(['y.0', 'y.1'])
    """
    arrays = {}
    for name, value in outputs.items():
        if isinstance(value, list | tuple):
            arrays |= flat({f"{name}.{i}": v for i, v in enumerate(value)})
        elif isinstance(value, dict):
            arrays |= flat({f"{name}.{k}": v for k, v in value.items()})
        elif value is not None:
            array = np.asarray(value)
            if array.dtype == object:
                array = array.astype(str)
            elif array.dtype.kind == "V":  # bfloat16, float8, int4, ...: float32 and int8 hold all
                array = array.astype(np.int8 if "int" in array.dtype.name else np.float32)
            arrays[name] = array
    return arrays


def read_array(path: Path) -> np.ndarray:
    """The array in an npy file, or in a tensor's pb file; a pickle is refused."""
    if path.suffix == ".pb":
        from ._dataset import read_value

        return read_value(path)
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as e:
        raise JaxshapeError(f"{path} is no npy file of numbers or text") from e


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name; pickles are refused."""
    try:
        with np.load(path, allow_pickle=False) as several:
            return dict(several)
    except (ValueError, TypeError, zipfile.BadZipFile) as e:
        raise JaxshapeError(f"{path} is no npz file of numbers or text") from e


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write `arrays` to one file if `path` ends in .npz, else each to an .npy in that folder."""
    if path.suffix == ".npz":
        # Not np.savez: it takes names as keyword arguments, and would refuse one called "file".
        with whole(path) as f, zipfile.ZipFile(f, "w") as several:
            for name, array in arrays.items():
                with several.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        return
    path.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for name, array in arrays.items():
        # The model chose the name: it must not lead out of the folder, nor hide one of the others.
        stem = re.sub(r"[^\w.-]|^\.", "_", name)
        while stem in taken:
            stem += "_"
        taken.add(stem)
        with whole(path / f"{stem}.npy") as f:
            np.lib.format.write_array(f, array, allow_pickle=False)
