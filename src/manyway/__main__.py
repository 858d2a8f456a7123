"""The command ``manyway``, also as ``python -m manyway``: an interruption while it starts is quiet too."""

import sys


def main() -> None:
    """Load the command line and run it."""
    try:
        from manyway.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
