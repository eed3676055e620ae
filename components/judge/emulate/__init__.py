"""Runs compiled PTX on the CPU, a warp at a time, with every access checked and counted."""
