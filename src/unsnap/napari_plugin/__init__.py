"""unsnap inside napari: open a capture, reconstruct it, scrub through its frames. Built on public names alone.

Nothing else imports this; napari finds it through `napari.yaml`.
"""
