"""Metrics over all matrices, the oracle, tables, plots, the report."""
