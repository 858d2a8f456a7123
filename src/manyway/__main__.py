"""The command ``manyway``, also as ``python -m manyway``.

An interruption while it starts is one line too.
"""

import atexit
import gc
import os
import signal
from types import FrameType

_IMPORTING = "<frozen importlib._bootstrap"
_SOON = 0.05  # seconds


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
        signal.signal(signal.SIGINT, _stop)
    run()


def _leave(*_: object) -> None:
    """End at once: nothing has been done yet."""
    os.write(2, b"manyway: interrupted.\n")
    os._exit(130)


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop a command; while a library is being loaded, as soon as that is done.

    Libraries in C answer an interruption in the middle of it with errors of any kind, or end the process.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTING):
            _again(number)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _again(number: int) -> None:
    """Send a signal to this process once more, a little later."""
    from threading import Timer, main_thread

    def send() -> None:
        if hasattr(signal, "pthread_kill"):  # it ends a wait of the main thread, too
            signal.pthread_kill(main_thread().ident or 0, number)
        else:
            signal.raise_signal(number)

    later = Timer(_SOON, send)
    later.daemon = True
    later.start()


if __name__ == "__main__":
    main()
