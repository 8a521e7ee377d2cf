"""`python -m unsnap` is `unsnap`."""

from unsnap.cli import main

if __name__ == "__main__":  # the studio's workers import this module under another name
    main()
