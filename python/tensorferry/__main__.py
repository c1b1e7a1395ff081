"""The entry point of the command `tensorferry` and of `python -m tensorferry`."""

import sys


def main() -> int:
    """Runs the command line and returns the exit code."""
    try:
        # Imported here, so that Ctrl-C is quiet while libraries are imported.
        from tensorferry._tools import cli
    except KeyboardInterrupt:
        return 130
    return cli.main()


if __name__ == "__main__":
    code = main()
    # After an interrupt in code from a string, which many libraries run while they are imported,
    # `python -m` ends by SIGINT, whatever the exit code, unless code from a string has run since.
    exec("")
    sys.exit(code)
