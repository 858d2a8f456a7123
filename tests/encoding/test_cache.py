"""Features are computed once per content, encoder and preprocessing, whatever happens to the files of the cache."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from PIL import Image

from manyway.encoding import cache as module
from manyway.encoding import extraction
from manyway.encoding.cache import FeatureCache
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.encoding.datasets.sources import open_source
from manyway.encoding.datasets.texts import open_texts
from manyway.encoding.encoders import ImageEncoder, TextEncoder
from manyway.encoding.extraction import cache_for, encode
from manyway.files.files import cache_folder

PREPROCESS = Preprocess(resize=4, crop=4)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pictures(tmp_path):
    (tmp_path / "pictures").mkdir()
    for n in range(5):
        Image.new("RGB", (8, 8), (40 * n, 0, 90)).save(tmp_path / "pictures" / f"{n}.png")
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "pictures" / "moving.gif", save_all=True, append_images=frames[1:])
    return tmp_path / "pictures"


@pytest.fixture
def seen():
    """The number of pictures of each call of the network."""
    return []


@pytest.fixture
def encoder(seen):
    def means(images):
        seen.append(len(images))
        return images.float().mean((2, 3))

    return ImageEncoder("means", "weights", PREPROCESS, means)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(extraction, "_TOGETHER", 4)


def run(pictures, encoder, **options):
    with cache_for(encoder, **options) as cache:
        return encode(open_source(pictures), encoder, cache=cache)


def test_a_second_run_encodes_nothing_and_answers_the_same(pictures, encoder, seen):
    first = run(pictures, encoder)
    assert seen == [4, 2]
    second = run(pictures, encoder)
    assert seen == [4, 2]
    assert torch.equal(first.features, second.features)
    assert first.data_hash == second.data_hash == encode(open_source(pictures), encoder).data_hash
    assert second.notes == (("moving.gif", "only its first frame is used"),)


def test_only_new_and_changed_pictures_are_encoded_again(pictures, encoder, seen):
    run(pictures, encoder)
    Image.new("RGB", (8, 8), "white").save(pictures / "2.png")
    (pictures / "copy.png").write_bytes((pictures / "1.png").read_bytes())
    features = run(pictures, encoder).features
    assert seen == [4, 2, 1]
    assert torch.equal(features, encode(open_source(pictures), encoder).features)


@pytest.mark.parametrize(
    "change",
    [{"weights": "other"}, {"preprocess": Preprocess(resize=5, crop=4)}, {"name": "b"}, {"engine": "openvino f16"}],
)
def test_another_encoder_has_features_of_its_own(change, pictures, encoder, seen):
    run(pictures, encoder)
    run(pictures, replace(encoder, **change))
    assert seen == [4, 2, 4, 2]


def test_broken_pictures_are_looked_at_again(pictures, encoder, seen):
    (pictures / "0.png").write_bytes(b"no picture")
    for _ in range(2):
        with cache_for(encoder) as cache:
            encoded = encode(open_source(pictures), encoder, cache=cache, skip_bad=True)
        assert [name for name, _ in encoded.skipped] == ["0.png"]
        assert len(encoded.features) == 5
    assert seen == [3, 2]


def test_texts_are_kept_by_what_they_say(tmp_path):
    seen = []
    encoder = TextEncoder(
        "length", "w", lambda texts: seen.extend(texts) or torch.tensor([[len(t), 0.0] for t in texts])
    )
    for texts in ("hello\nbye\n", "new\nhello\nbye\n"):
        (tmp_path / "a.txt").write_text(texts)
        with cache_for(encoder) as cache:
            features = encode(open_texts(tmp_path / "a.txt"), encoder, cache=cache).features
    assert seen == ["hello", "bye", "new"]
    assert features[:, 0].tolist() == [3.0, 5.0, 3.0]


def test_what_an_interrupted_run_has_encoded_is_kept(pictures, encoder, seen):
    def stop(images):
        if seen:
            raise KeyboardInterrupt
        return encoder.encode(images)

    with pytest.raises(KeyboardInterrupt):
        run(pictures, replace(encoder, encode=stop))
    run(pictures, encoder)
    assert seen == [4, 2]


@pytest.mark.parametrize("damage", ["a wrong number", "half of the file", "another file", "nothing in it"])
def test_damaged_files_are_replaced(damage, pictures, encoder, seen, folder):
    first = run(pictures, encoder).features
    (path,) = folder.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "a wrong number":
        at = data.index(first[0].numpy().tobytes())
        data[at + 2] ^= 0x40
    path.write_bytes(
        {"half of the file": data[: len(data) // 2], "another file": b"precious", "nothing in it": b""}.get(
            damage, data
        )
    )
    assert torch.equal(run(pictures, encoder).features, first)
    count = len(seen)
    assert count > 2
    run(pictures, encoder)
    assert len(seen) == count


def test_a_cache_that_cannot_be_written_is_said_once_and_does_no_harm(pictures, encoder, folder, monkeypatch):
    monkeypatch.setattr(module, "SHARD", 2)
    folder.write_text("a file where the folder should be")
    said: list[str] = []
    features = run(pictures, encoder, say=said.append).features
    assert torch.equal(features, encode(open_source(pictures), encoder).features)
    (sentence,) = said
    assert "features are not kept for the next run: cannot write" in sentence


def test_two_processes_may_write_at_the_same_time(folder):
    caches = [FeatureCache(["space"]) for _ in range(2)]
    for number, cache in enumerate(caches):
        with cache:
            cache.add("aa" * 32, torch.ones(2), "")
            cache.add(f"b{number}" * 32, torch.full((2,), float(number)), "")
    with FeatureCache(["space"]) as cache:
        assert cache.get("b0" * 32)[0].tolist() == [0.0, 0.0]
        assert cache.get("b1" * 32)[0].tolist() == [1.0, 1.0]
        assert cache.get("aa" * 32)[0].tolist() == [1.0, 1.0]
        assert cache.get("cc" * 32) is None


def test_features_that_were_not_used_for_long_are_removed_first(folder, monkeypatch):
    def write(letter: str, now: float) -> None:
        monkeypatch.setattr(module.time, "time", lambda: now)
        with FeatureCache([letter]) as cache:
            cache.add("aa" * 32, torch.ones(1000), "")

    write("old", 1000)
    write("older", 500)
    monkeypatch.setattr(module.time, "time", lambda: 1500.0)
    with FeatureCache(["older"]) as cache:
        assert cache.get("aa" * 32) is not None  # from now on it is the newest
    monkeypatch.setattr(module, "LIMIT", (folder / "features.sqlite").stat().st_size)  # two fit, three do not
    write("new", 2000)
    found = {name: FeatureCache([name]).get("aa" * 32) is not None for name in ("old", "older", "new")}
    assert found == {"old": False, "older": True, "new": True}


def test_threads_may_ask_at_the_same_time():
    keys = [f"{n:02x}" * 32 for n in range(64)]
    with FeatureCache(["space"]) as cache:
        for n, key in enumerate(keys):
            cache.add(key, torch.tensor([float(n)]), "")
    with FeatureCache(["space"]) as cache, ThreadPoolExecutor(8) as pool:
        assert [found[0].item() for found in pool.map(cache.get, keys)] == list(range(64))


def test_the_folder_is_where_the_system_has_its_caches(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("MANYWAY_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "x" / "manyway"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "manyway"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "manyway"
