"""Kernel programs: operators, storage formats, the contract, and the families that write programs."""
