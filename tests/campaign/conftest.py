"""The command line in this process."""

from cli.conftest import unsnap

__all__ = ["unsnap"]
