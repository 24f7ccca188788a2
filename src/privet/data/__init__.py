"""Data sets with public bounds: built in, from a folder, or the user's own tables.

>>> from privet import data
>>> blobs = data.load("blobs")
>>> blobs.x_train.shape, blobs.classes
((2000, 10), ('a', 'b', 'c'))
"""

from privet.data.array_files import from_arrays, load_npz
from privet.data.builtin_datasets import NAMES, dataset_names, load
from privet.data.csv_file import load_csv
from privet.data.dataset import Dataset
from privet.data.declarations import read_declaration, template, write_declaration

__all__ = [
    "NAMES", "Dataset", "dataset_names", "from_arrays", "load", "load_csv", "load_npz",
    "read_declaration", "template", "write_declaration",
]  # fmt: skip
