"""The command ``manyway``, also as ``python -m manyway``.

An interruption while it starts is one line too.
"""

import atexit
import gc
import os
import signal


def main() -> None:
    """Load the command line and run it."""
    # Looking for circles among torch's hundreds of thousands of objects, at the end and while it is imported, would
    # take half a second of every command.
    atexit.register(gc.freeze)
    gc.set_threshold(50_000, *gc.get_threshold()[1:])
    # On ARM, torch's allocator gives memory back after 10 ms and asks for it again: a sixth of the time of pictures.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")
    # An interruption that comes while libraries are loaded can end in errors of any kind, with a traceback.
    quiet = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if quiet:
        signal.signal(signal.SIGINT, _leave)
    from manyway.cli import main as run

    if quiet:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(*_: object) -> None:
    """End at once: nothing has been done yet."""
    os.write(2, b"manyway: interrupted.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
