"""The command before it does anything: no arguments, a removed folder, odd settings, interruptions."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
import time
from importlib import metadata

import pytest

from manyway.encoding import encoders, network
from manyway.errors import InputError, install


def start(*words: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "manyway", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def test_without_arguments_it_says_what_to_type_for_each_kind(run_in_folder):
    code, out, _ = run_in_folder()
    assert code == 0
    for words in ("photographs     manyway review", "tickets", "camera traps", "sound", "feature tables"):
        assert words in out
    assert max(map(len, out.splitlines())) < 80


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no folder in use")
def test_paragraphs_of_the_help_are_broken_by_the_terminal_alone(run_in_folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run_in_folder("label", "--help")
    lines = [line.strip() for line in out.splitlines()]
    start = next(at for at, line in enumerate(lines) if line.startswith("EXAMPLES holds features"))
    paragraph = lines[start : lines.index("", start)]
    assert code == 0
    assert min(map(len, paragraph[:-1])) > 60, paragraph  # none ends where a line of the source does
    assert any(line.startswith("manyway label catalogue/ photos/") for line in lines)  # commands keep their lines
    for words in (out, run_in_folder("review", "--help")[1]):
        assert not [word for word in words.split() if word.endswith("…") and len(word) > 1]  # no word is cut


def test_a_name_that_is_like_none_gets_the_list(run_in_folder):
    assert "did you mean" not in run_in_folder("bench", "paddle")[2]
    assert "did you mean 'quickstart'" in run_in_folder("bench", "quick-start")[2]


def test_a_removed_working_folder_is_one_sentence(tmp_path):
    (tmp_path / "gone").mkdir()
    code = "import os, sys; os.chdir('gone'); os.rmdir('../gone'); sys.argv[1:] = ['label', 'a.csv', 'b.csv']\n"
    code += "from manyway.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (
        2,
        "manyway: the folder that you are in was removed; go to another one.\n",
    )


def test_a_setting_that_torch_does_not_know_is_one_sentence(tmp_path):
    done = start("methods", "evidence", cwd=tmp_path, env={**os.environ, "TORCH_LOGS": "nonsense"})
    assert done.returncode in (0, 2)
    assert done.returncode == 0 or "TORCH_LOGS" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interruption_while_it_starts_is_one_line():
    code = (
        "import sys, signal, os, importlib.abc\n"
        "class Slow(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'manyway.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it\n"
        "from manyway.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (130, "manyway: interrupted.\n")


def test_an_interruption_waits_until_a_library_is_loaded(tmp_path):
    """Libraries in C answer it with errors of any kind, or end the process."""
    (tmp_path / "slow.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(1000): pass\nloaded = 'loaded'\n"
    )
    code = (
        "import signal, time\n"
        "from manyway.__main__ import _stop\n"
        "signal.signal(signal.SIGINT, _stop)\n"
        "try:\n"
        "    import slow\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print(slow.loaded, 'and stopped')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("loaded and stopped\n", "")


def test_little_is_loaded_before_an_interruption_is_one_line():
    """Nothing takes it while the package is imported, before the command begins: only Python's own start may."""
    code = "import sys, re, importlib; before = set(sys.modules); import manyway.__main__\n"  # a console script has re
    code += "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert set(ast.literal_eval(done.stdout)) <= {"manyway", "atexit", "gc", "signal", "types"}


class Installed:
    """What an installation says about itself."""

    def __init__(self, origin: str | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        return self.origin


def test_hints_name_the_way_of_the_installation_and_keep_torch(monkeypatch, tmp_path):
    monkeypatch.setattr(metadata, "version", lambda name: "2.9.1+cpu")
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(None))
    assert install("texts") == 'pip install torch==2.9.1+cpu "manyway[texts]"'
    # A torchvision of another build cannot be imported.
    index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert install("encoders") == f'pip install torch==2.9.1+cpu {index} "manyway[encoders]"'
    (tmp_path / "constraints.txt").touch()
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(f'{{"url": "{tmp_path.as_uri()}"}}'))
    assert install("texts") == (
        f'pip install torch==2.9.1+cpu -c "{tmp_path / "constraints.txt"}" -e "{tmp_path}[texts]"'
    )


def test_without_a_network_a_download_is_not_tried_for_long(monkeypatch, tmp_path):
    asked = []

    def refuse(address, timeout):
        asked.append((address, timeout))
        raise OSError("Network is unreachable")

    def load(model, device, say):
        raise OSError("offline mode is enabled")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setattr(network, "getproxies", dict)
    monkeypatch.setattr(encoders.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(network.socket, "create_connection", refuse)
    monkeypatch.setitem(encoders._FAMILIES, "timm", load)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(InputError, match="There is no network to download the encoder timm:resnet50 from"):
        encoders.open_encoder("timm:resnet50")
    (tmp_path / "hub" / "models--timm--resnet18").mkdir(parents=True)
    with pytest.raises(InputError, match="There is no network to download the encoder timm:resnet50 from"):
        encoders.open_encoder("timm:resnet50")
    (tmp_path / "hub" / "models--timm--resnet50.a1").mkdir()
    with pytest.raises(InputError, match="There is no network, and it was not downloaded before"):
        encoders.open_encoder("timm:resnet50")
    assert asked == 3 * [(("huggingface.co", 443), 3)]
    asked.clear()
    for proxy, address in (("http://gate:3128", ("gate", 3128)), ("gate:80", ("gate", 80))):
        monkeypatch.setattr(network, "getproxies", lambda proxy=proxy: {"https": proxy})
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        with pytest.raises(InputError, match="There is no network"):
            encoders.open_encoder("timm:resnet50")
        assert asked.pop() == (address, 3)
    monkeypatch.delenv("HF_HUB_OFFLINE")


def test_a_network_that_swallows_everything_is_given_up_in_time(monkeypatch):
    over = threading.Event()

    def wait(*_, timeout):
        over.wait(20)  # as long as the test, not as long as a busy machine
        raise TimeoutError

    monkeypatch.setattr(network, "_PATIENCE", 0.1)
    monkeypatch.setattr(network.socket, "create_connection", wait)
    start = time.monotonic()
    assert not network._answers("huggingface.co", 443)
    assert time.monotonic() - start < 15
    over.set()
