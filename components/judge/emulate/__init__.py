"""PTX on the CPU, a warp at a time, with every access checked and counted (`machine.load_ptx`, `machine.run`).

ptx_text -> translate (instructions, convert, transport, warp_instructions) -> bytecode -> core (numba; vector_ops).
"""
