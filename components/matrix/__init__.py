"""Matrices: read, pull, generate, describe, split."""
