"""The coverage corpus: small kernels, one or a few instructions each, with what numpy says they compute."""

from tests.judge.emulate import coverage_arithmetic, coverage_machine

KERNELS = [*coverage_arithmetic.KERNELS, *coverage_machine.KERNELS]
