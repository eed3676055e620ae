"""The campaign: which kernel of the library is fastest on each matrix of a set, searched, re-measured and summed up.

`python -m components.campaign run | ingest | summary`; `run` needs python, numpy, scipy, numba and cupy alone.
"""
