"""CUDA source for pre-training: pinned artifacts, licence filter, near-dedup, parquet."""
