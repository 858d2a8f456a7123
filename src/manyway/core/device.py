"""The one rule for the device that work runs on."""

import torch

from manyway.errors import InputError


def resolve_device(name: str | torch.device | None = None) -> torch.device:
    """The device of a name such as ``"cuda:1"``, after checking that it can be used on this machine.

    None means CUDA where it is available, else the CPU.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).cpu()  # the device "meta" stores nothing: copying from it fails
    except Exception as error:  # backends that are not compiled in raise errors of many kinds
        raise InputError(f"Device '{name}' cannot be used here; choose cpu, or cuda:N where there is a GPU.") from error
    return device
