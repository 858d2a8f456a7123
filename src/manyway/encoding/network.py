"""Whether there is a network to download weights from.

It is asked before torch is imported, which takes seconds.
"""

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit
from urllib.request import getproxies

from manyway.errors import InputError, is_installed

_HUB = "huggingface.co"  # where weights are
_PATIENCE = 3  # seconds to wait for it
_FAMILIES = ("timm", "open_clip", "sentence-transformers")  # encoders that download weights


def check_network(name: str) -> None:
    """Let libraries use what they have downloaded before where no network answers.

    They would try for a minute.

    ``name`` is an encoder, see ``open_encoder``. One that was not downloaded is an InputError.
    """
    family, _, model = name.partition(":")
    if (
        family not in _FAMILIES
        or not is_installed(family.replace("-", "_"))
        or Path(model).is_dir()
    ):
        return  # it needs no network, or its library is missing
    if os.environ.get("HF_HUB_OFFLINE"):
        return  # it is known that there is none
    asked = getproxies().get("https") or os.environ.get("HF_ENDPOINT") or f"https://{_HUB}"
    address = urlsplit(asked if "//" in asked else f"//{asked}")
    if _answers(
        address.hostname or _HUB, address.port or (80 if address.scheme == "http" else 443)
    ):
        return
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    kept = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").glob(
        f"models--*{Path(model).name}*"
    )
    if not any(kept) and family != "open_clip":  # its weights have other names
        raise InputError(
            f"There is no network to download the encoder {name} from; "
            "the default encoders need none."
        )
    os.environ["HF_HUB_OFFLINE"] = "1"
    hub = sys.modules.get("huggingface_hub.constants")
    if hub is not None:
        setattr(hub, "HF_HUB_OFFLINE", True)  # noqa: B010 -- the constant was read when the library was imported


def _answers(host: str, port: int) -> bool:
    """Whether a server answers soon.

    Names are looked up, and all its addresses are tried, within that time.
    """
    answered = list[bool]()

    def ask() -> None:
        with suppress(OSError):
            socket.create_connection((host, port), timeout=_PATIENCE).close()
            answered.append(True)

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE)
    return bool(answered)
