"""Fused CPU kernels (numba), the fast twins of plain torch code elsewhere.

Nothing here is imported until a CPU tensor without gradients needs it, so `import unsnap` does not pay for numba.
Every kernel releases the GIL and works on plain contiguous arrays; threads are ours (see `threads.py`).
"""
