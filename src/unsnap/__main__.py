"""`python -m unsnap` is `unsnap`."""

from unsnap.cli import main

main()
