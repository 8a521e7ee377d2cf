"""unsnap: turn one coded snapshot back into the video it contains."""

__version__ = "0.1.0"
