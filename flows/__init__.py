"""Prefect flows: time and machines; the only code that imports prefect."""
