"""Adult (Census Income): 14 attributes coded with categories and bounds from its documentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privet.data.data_folder import damaged_file, find
from privet.data.dataset import Dataset

# adult.names lists the categories; "?" stands for unknown in three of them.
_CATEGORIES = {
    "workclass": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, "
    "Without-pay, Never-worked, ?",
    "education": "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, "
    "9th, 7th-8th, 12th, Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
    "marital-status": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, "
    "Married-spouse-absent, Married-AF-spouse",
    "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, "
    "Prof-specialty, Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, "
    "Transport-moving, Priv-house-serv, Protective-serv, Armed-Forces, ?",
    "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    "race": "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    "sex": "Female, Male",
    "native-country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
    "Outlying-US(Guam-USVI-etc), India, Japan, Greece, South, China, Cuba, Iran, Honduras, "
    "Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, France, "
    "Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, Nicaragua, "
    "Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, "
    "Holand-Netherlands, ?",
}
# Bounds from the survey's rules, not from the records: people over 16 who work, two-digit hours,
# top-coded age and capital gain, sixteen levels of education. The two capital columns are taken as
# log(1 + amount).
_BOUNDS = {
    "age": (16.0, 90.0),
    "fnlwgt": (0.0, 1_500_000.0),
    "education-num": (1.0, 16.0),
    "capital-gain": (0.0, float(np.log1p(99_999.0))),
    "capital-loss": (0.0, float(np.log1p(5_000.0))),
    "hours-per-week": (1.0, 99.0),
}
_LOGARITHMIC = ("capital-gain", "capital-loss")
_ORDER = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
]


def adult(folder: Path) -> Dataset:
    """32,561 + 16,281 people, 14 attributes as 108 columns, income over 50K (UCI)."""
    x_train, y_train = _read(find("adult/adult.data", folder=folder))
    x_test, y_test = _read(find("adult/adult.test", folder=folder))
    categories = {name: text.split(", ") for name, text in _CATEGORIES.items()}
    one_hot = [f"{name}={value}" for name, values in categories.items() for value in values]
    return Dataset(
        name="adult",
        about="Adult census income: 32,561 + 16,281 people, 14 attributes, income over 50K or not",
        classes=("<=50K", ">50K"),
        low=np.array([low for low, _ in _BOUNDS.values()] + [0.0] * len(one_hot)),
        high=np.array([high for _, high in _BOUNDS.values()] + [1.0] * len(one_hot)),
        feature_names=(*_BOUNDS, *one_hot),
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
    )


def _read(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("|")]
    cells = [line.rstrip(".").split(", ") for line in lines]
    if bad := [k for k, line in enumerate(cells, start=1) if len(line) != len(_ORDER) + 1]:
        raise damaged_file(path, f"record {bad[0]} does not have {len(_ORDER) + 1} cells")
    columns = dict(zip(_ORDER, zip(*(line[:-1] for line in cells), strict=True), strict=True))
    parts = []
    for name in _BOUNDS:
        try:
            value = np.array(columns[name], dtype=np.float64)
        except ValueError as error:
            raise damaged_file(path, f"column {name!r}: {error}") from None
        if not ((value >= 0.0) & (value <= np.finfo(np.float32).max)).all():
            raise damaged_file(path, f"column {name!r} has a value that is negative or not finite")
        parts.append((np.log1p(value) if name in _LOGARITHMIC else value)[:, None])
    for name, text in _CATEGORIES.items():
        values = np.array(text.split(", "))
        hot = np.array(columns[name])[:, None] == values
        if not hot.any(axis=1).all():
            record = int(np.argmin(hot.any(axis=1)))
            raise damaged_file(
                path, f"record {record + 1}, {name}: {columns[name][record]!r} is unknown"
            )
        parts.append(hot.astype(np.float64))
    labels = np.array([line[-1] for line in cells])
    if not np.isin(labels, ("<=50K", ">50K")).all():
        raise damaged_file(path, "a label is neither <=50K nor >50K")
    return np.hstack(parts).astype(np.float32), (labels == ">50K").astype(np.int64)
