"""Fused CPU kernels (numba), the fast twins of plain torch code elsewhere.

Each module that computes something says how many times faster it is than what a library or plain torch offers, on one
thread of an AVX2 machine; `python benchmarks/hand_written.py` measures it again (`blocks.py` and `emit.py` are parts of
`groups.py` and `lanes.py`).

Nothing here is imported until a CPU tensor without gradients needs it, so `import unsnap` does not pay for numba.
Every kernel releases the GIL and works on plain contiguous arrays; threads are ours (see `threads.py`).
"""
