"""`python -m tensorferry` is the command `tensorferry`, which is this module's `main` too."""

import sys


def main() -> int:
    """Runs the command line; the exit code."""
    try:
        # Here, so that Ctrl-C is quiet while the libraries are loaded as well.
        from tensorferry._tools import cli
    except KeyboardInterrupt:
        return 130
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
