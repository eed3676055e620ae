"""What `sparserl matrices info` prints and a manifest row holds."""

import dataclasses
from typing import Any

from components.matrix.features import StructureFeatures, structure_class, structure_features
from components.matrix.types import SparseMatrix

IDENTITY = ("name", "group", "rows", "cols", "nnz", "nnz_stored", "field", "symmetry", "duplicates", "explicit_zeros")
FEATURE_COLUMNS = tuple(f.name for f in dataclasses.fields(StructureFeatures) if f.name not in ("rows", "cols", "nnz"))


def matrix_info(matrix: SparseMatrix) -> dict[str, Any]:
    """Name, shape, counts, class, then every structure feature, source and sha256; plain JSON types."""
    features = structure_features(matrix)
    info: dict[str, Any] = {key: getattr(matrix, key) for key in IDENTITY}
    info["structure_class"] = structure_class(features)
    info |= {name: getattr(features, name) for name in FEATURE_COLUMNS}
    return info | {"source": matrix.source, "sha256": matrix.sha256}
