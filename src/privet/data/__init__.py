"""Data sets with public bounds: built in, from a folder, or the user's own tables.

>>> from privet import data
>>> blobs = data.load("blobs")
>>> blobs.x_train.shape, blobs.classes
((2000, 10), ('a', 'b', 'c'))
"""

from privet.data.dataset import Dataset
from privet.data.named import NAMES, load
from privet.data.table import from_arrays, load_csv, load_npz

__all__ = ["NAMES", "Dataset", "from_arrays", "load", "load_csv", "load_npz"]
