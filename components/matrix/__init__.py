"""Matrices: read, pull, generate, describe, split.

`load.py` turns any file or name into a `SparseMatrix`; `ingest.py` is the stage that fills data/matrices.
"""
