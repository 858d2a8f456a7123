"""Training: random numbers depend on the seed alone, a killed run resumes to the same bits, two processes equal one."""

from __future__ import annotations

import csv
import os
import signal
from dataclasses import replace
from datetime import timedelta

import processes
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from manyway.cli.train import train as train_cli
from manyway.encoding.backbones.checkpoint import read_checkpoint, save_checkpoint, weights_hash
from manyway.encoding.backbones.networks import build, encode_images
from manyway.encoding.datasets.preprocess import ImageSet, Preprocess
from manyway.encoding.encoders import open_encoder
from manyway.errors import InputError
from manyway.training.loop import Reporter, RunFolder, draw_curves, train, training_batch
from manyway.training.recipe import (
    AUGMENTATIONS,
    Recipe,
    colour_jitter,
    learning_rate,
    random_flip,
    random_resized_crop,
)

SIDE = 16
PREPROCESS = Preprocess.for_size(SIDE, channels=1)
RECIPE = Recipe(epochs=3, batch=16, lr=0.05, schedule="cosine", augment="drawing", val_tasks=20)


def patterns(n_classes: int = 6, per_class: int = 12, seed: int = 0) -> ImageSet:
    """Noisy copies of one random picture per class, which are easy to learn."""
    generator = torch.Generator().manual_seed(seed)
    masters = torch.randint(0, 256, (n_classes, 1, SIDE, SIDE), generator=generator)
    labels = torch.arange(n_classes * per_class) % n_classes
    noise = torch.randint(-40, 41, (len(labels), 1, SIDE, SIDE), generator=generator)
    images = (masters[labels] + noise).clamp(0, 255).to(torch.uint8)
    return ImageSet(images, labels, tuple(f"class {i}" for i in range(n_classes)))


def run(folder=None, recipe=RECIPE, reporter=None, network=None):
    network = build("resnet-small", 6, 1) if network is None else network
    saved = None if folder is None else RunFolder(folder, {"backbone": "resnet-small"})
    return train(network, patterns(), recipe, PREPROCESS, val=patterns(seed=1), folder=saved, reporter=reporter)


def test_it_learns_and_leaves_everything_in_the_folder(tmp_path):
    trained = run(tmp_path)
    assert trained.history[-1].loss < trained.history[0].loss
    assert [result.epoch for result in trained.history] == [1, 2, 3]
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == [result.loss for result in trained.history]
    best = read_checkpoint(tmp_path / "best.safetensors")
    kept = max(trained.history, key=lambda result: (result.val_accuracy, -result.epoch))
    assert best.meta["epoch"] == kept.epoch
    assert best.meta["recipe"]["epochs"] == 3
    # The encoder made from the file is the network, its mean and its preprocessing.
    encoder = open_encoder(str(tmp_path / "best.safetensors"))
    assert encoder.weights == weights_hash(trained.network)
    assert torch.equal(encoder.base_mean, trained.base_mean)
    assert encoder.preprocess == PREPROCESS
    expected = encode_images(trained.network, patterns().images, PREPROCESS)
    assert torch.equal(encoder.encode(patterns().images), expected)
    torch.testing.assert_close(trained.base_mean, expected.mean(0))
    draw_curves(tmp_path / "curves.png", trained.history)
    assert (tmp_path / "curves.png").stat().st_size > 1000


class Killed(Exception):
    pass


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_run_that_died_goes_on_to_the_same_bits(optimizer, tmp_path):
    recipe = replace(RECIPE, optimizer=optimizer, lr=0.05 if optimizer == "sgd" else 3e-3)
    whole = run(tmp_path / "whole", recipe)

    def die(epoch: int, n_images: int) -> None:
        if epoch == 2 and n_images == 32:  # in the middle of an epoch
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path / "cut", recipe, Reporter(step=die))
    first_epochs = []
    resumed = run(tmp_path / "cut", recipe, Reporter(epoch=lambda result: first_epochs.append(result.epoch)))
    assert first_epochs == [2, 3]
    assert weights_hash(resumed.network) == weights_hash(whole.network)
    assert resumed.history == whole.history
    for name in ("best.safetensors", "log.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    one, other = (torch.load(tmp_path / name / "last.pt", weights_only=True) for name in ("cut", "whole"))
    torch.testing.assert_close(one["model"], other["model"], rtol=0, atol=0)
    torch.testing.assert_close(one["optimizer"]["state"], other["optimizer"]["state"], rtol=0, atol=0)
    assert (one["history"], one["description"]) == (other["history"], other["description"])


@pytest.mark.slow
def test_a_run_checked_every_second_epoch_resumes_from_there_to_the_same_bits(tmp_path):
    recipe = replace(RECIPE, epochs=4, check_every=2, mixup=0.4)
    whole = run(tmp_path / "whole", recipe)
    assert [result.val_accuracy is not None for result in whole.history] == [False, True, False, True]

    def die(epoch: int, n_images: int) -> None:
        if epoch == 4:
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path / "cut", recipe, Reporter(step=die))
    epochs = []
    resumed = run(tmp_path / "cut", recipe, Reporter(epoch=lambda result: epochs.append(result.epoch)))
    assert epochs == [3, 4]
    assert resumed.history == whole.history
    assert (tmp_path / "cut" / "best.safetensors").read_bytes() == (
        tmp_path / "whole" / "best.safetensors"
    ).read_bytes()


def test_global_randomness_is_neither_used_nor_changed():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = run(recipe=Recipe(epochs=1, batch=16, augment="drawing", val_tasks=5))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    two = run(recipe=Recipe(epochs=1, batch=16, augment="drawing", val_tasks=5))
    assert weights_hash(one.network) == weights_hash(two.network)


def test_a_folder_with_another_run_is_refused(tmp_path):
    short = Recipe(epochs=1, batch=16, augment="none", val_tasks=5)
    run(tmp_path, short)
    with pytest.raises(InputError, match="another recipe"):
        run(tmp_path, Recipe(epochs=1, batch=8, augment="none", val_tasks=5))


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": "linear"},
        {"augment": "fotos"},
        {"epochs": 0},
        {"lr": 0.0},
        {"mixup": -0.1},
        {"weight_decay": -1.0},
        {"check_every": 0},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"mixup": float("nan")},
        {"weight_decay": float("inf")},
        {"seed": -1},
    ],
)
def test_impossible_recipes_get_a_sentence(change):
    with pytest.raises(InputError):
        Recipe(**change)


def test_too_few_images_get_a_sentence():
    with pytest.raises(InputError, match="fewer than one batch"):
        run(recipe=Recipe(epochs=1, batch=512))


def test_a_network_with_another_number_of_scores_gets_a_sentence():
    with pytest.raises(InputError, match="gives 5 scores; there are 6 classes"):
        train(build("resnet-small", 5, 1), patterns(), RECIPE, PREPROCESS)


def test_the_papers_schedule():
    rates = [learning_rate(Recipe(), epoch) for epoch in range(90)]
    assert rates[:45] == [0.1] * 45
    assert rates[45:66] == pytest.approx([0.01] * 21)
    assert rates[66:] == pytest.approx([0.001] * 24)


SHARED_RECIPES = {"plain": replace(RECIPE, epochs=1), "mixed": replace(RECIPE, epochs=1, mixup=0.4)}
SECOND_PROCESS = """
import os, sys
sys.path[:0] = [sys.argv[1], os.path.dirname(sys.argv[1])]
from test_training import train_in_two
train_in_two(1, sys.argv[2])
"""


def without_batch_statistics():
    """A network that normalises each image by itself: torch has statistics of the global batch on GPUs only."""
    network = build("resnet-small", 6, 1)
    for name, layer in list(network.named_modules()):
        if isinstance(layer, torch.nn.BatchNorm2d):
            parent, _, last = name.rpartition(".")
            setattr(network.get_submodule(parent), last, torch.nn.GroupNorm(1, layer.num_features))
    return network


def train_in_two(rank, folder):
    """Train each shared recipe as one of two processes and write what it gave into the folder."""
    torch.set_num_threads(1)
    place, patience = f"file://{folder}/rendezvous", timedelta(minutes=4)
    torch.distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=2, timeout=patience)
    try:
        for name, recipe in SHARED_RECIPES.items():
            trained = run(recipe=recipe, network=without_batch_statistics())
            told = {"state": trained.network.state_dict(), "mean": trained.base_mean}
            told["loss"] = [result.loss for result in trained.history]
            torch.save(told, f"{folder}/{name}-{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_equal_one_with_the_same_global_batch(tmp_path):
    with processes.Started(SECOND_PROCESS, os.path.dirname(__file__), tmp_path) as other:
        alone = {
            name: run(recipe=recipe, network=without_batch_statistics()) for name, recipe in SHARED_RECIPES.items()
        }
        train_in_two(0, tmp_path)
        assert other.wait(timeout=300) == 0
    for name, expected in alone.items():
        for rank in range(2):
            told = torch.load(tmp_path / f"{name}-{rank}.pt", weights_only=True)
            assert told["loss"] == pytest.approx([result.loss for result in expected.history], rel=1e-3)
            torch.testing.assert_close(told["mean"], expected.base_mean, rtol=2e-3, atol=2e-3)
            for parameter, tensor in expected.network.state_dict().items():
                torch.testing.assert_close(told["state"][parameter], tensor, rtol=2e-3, atol=2e-3, msg=parameter)


def test_several_processes_on_a_cpu_are_refused(monkeypatch):
    monkeypatch.setattr("manyway.training.loop._world", lambda: (2, 0))
    with pytest.raises(InputError, match="on GPUs only"):
        run()


def test_resized_crops_stay_inside_and_a_full_crop_is_the_image():
    images = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    whole = torch.tensor([[1.0, 0.5, 0.3, 0.9]]).expand(2, 4)  # all of the area, square
    torch.testing.assert_close(random_resized_crop(images, whole, 12), images, rtol=0, atol=1e-5)
    ramp = torch.arange(12.0).expand(64, 1, 12, 12) / 11
    crops = random_resized_crop(ramp, torch.rand(64, 4, generator=torch.Generator().manual_seed(0)), 8)
    assert crops.min() >= 0
    assert crops.max() <= 1 + 1e-6
    assert (crops.diff(dim=3) >= -1e-6).all()  # left stays left


def test_colour_jitter_does_nothing_at_the_middle_and_keeps_grey_grey():
    images = torch.rand(3, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(colour_jitter(images, torch.full((3, 3), 0.5)), images)
    grey = images[:, :1].expand(-1, 3, -1, -1)
    changed = colour_jitter(grey, torch.rand(3, 3, generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(changed[:, 0], changed[:, 2])
    brighter = colour_jitter(0.5 * images, torch.tensor([[1.0, 0.5, 0.5]]).expand(3, 3))
    torch.testing.assert_close(brighter, 0.5 * 1.4 * images)


def test_flips_are_flips():
    images = torch.rand(2, 1, 3, 4, generator=torch.Generator().manual_seed(0))
    out = random_flip(images, torch.tensor([[0.1], [0.9]]))
    assert torch.equal(out[0], images[0].flip(2))
    assert torch.equal(out[1], images[1])


def test_mixtures_are_of_an_image_and_the_next_in_the_shares_that_the_loss_uses():
    recipe = replace(RECIPE, mixup=0.5, augment="none")
    base = patterns()
    batch = training_batch(base, torch.arange(16), recipe, PREPROCESS, epoch=1, step=0, mine=slice(0, 16))
    plain, share = PREPROCESS.standardise(base.images[:16]), batch.weight.view(-1, 1, 1, 1)
    torch.testing.assert_close(batch.images, share * plain + (1 - share) * plain.roll(-1, 0))
    assert torch.equal(batch.mixed_labels, base.labels[:16].roll(-1))
    assert len(set(batch.weight.tolist())) == 16
    scores = torch.randn(16, 6, generator=torch.Generator().manual_seed(0))
    target = torch.nn.functional.one_hot(batch.labels, 6) * batch.weight[:, None]
    target += torch.nn.functional.one_hot(batch.mixed_labels, 6) * (1 - batch.weight[:, None])
    expected = -(target * scores.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(batch.loss(scores, 0.0), expected)
    other_step = training_batch(base, torch.arange(16), recipe, PREPROCESS, epoch=1, step=1, mine=slice(0, 16))
    assert not torch.equal(other_step.weight, batch.weight)


@pytest.mark.parametrize("name", [name for name, augment in AUGMENTATIONS.items() if augment])
def test_an_image_is_augmented_the_same_in_any_batch(name):
    images = torch.rand(6, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    uniforms = torch.rand(6, 8, generator=torch.Generator().manual_seed(1))
    together = AUGMENTATIONS[name](images, uniforms, 16)
    apart = torch.cat([AUGMENTATIONS[name](images[i : i + 1], uniforms[i : i + 1], 16) for i in range(6)])
    assert together.shape == (6, 3, 16, 16)
    torch.testing.assert_close(together, apart)


def write_pictures(folder):
    """The patterns as PNG files in one folder per class."""
    base = patterns()
    for i, (image, label) in enumerate(zip(base.images, base.labels, strict=True)):
        (folder / f"class {label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(folder / f"class {label}" / f"{i}.png")
    return folder


def train_options(pictures, out, *more):
    options = ["--dataset", pictures, "--val", pictures, "--out", out, "--backbone", "resnet-small", "--grey"]
    options += ["--size", "16", "--epochs", "2", "--batch", "16", "--augment", "drawing", "--device", "cpu", *more]
    return [str(option) for option in options]


def train_command(*options):
    app = typer.Typer()
    app.command()(train_cli)
    return CliRunner().invoke(app, list(options))


@pytest.mark.slow
def test_a_killed_command_resumes(tmp_path):
    """SIGKILL to ``manyway train``; the same command again gives the weights of an uninterrupted run."""
    pictures = write_pictures(tmp_path / "pictures")
    # The process kills itself when it begins its second epoch.
    code = """
import os, signal, typer
import manyway.training.loop as loop
from manyway.cli.train import train
batch = loop.training_batch
def batch_or_death(*arguments, epoch, **options):
    if epoch == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch(*arguments, epoch=epoch, **options)
loop.training_batch = batch_or_death
typer.run(train)
"""
    killed = processes.run(code, *train_options(pictures, tmp_path / "killed"))
    assert killed.returncode == -signal.SIGKILL, killed.stdout
    assert (tmp_path / "killed" / "last.pt").exists()
    assert not (tmp_path / "killed" / "curves.png").exists()
    for out in ("killed", "whole"):
        result = train_command(*train_options(pictures, tmp_path / out))
        assert result.exit_code == 0, result.output
    assert "best.safetensors: epoch" in result.output
    assert (tmp_path / "whole" / "curves.png").exists()
    killed_bytes, whole_bytes = ((tmp_path / out / "best.safetensors").read_bytes() for out in ("killed", "whole"))
    assert killed_bytes == whole_bytes


def test_a_run_is_not_written_into_its_pictures(tmp_path):
    pictures = write_pictures(tmp_path / "pictures")
    before = sorted(pictures.rglob("*"))
    result = train_command(*train_options(pictures, pictures / "run"))
    assert isinstance(result.exception, InputError)
    assert "lies in the input folder" in str(result.exception)
    assert sorted(pictures.rglob("*")) == before


@pytest.mark.parametrize("out", ["file", "file/below", "/proc/run"])
def test_a_folder_that_cannot_be_made_is_noticed_before_training(out, tmp_path):
    (tmp_path / "file").write_text("precious")
    result = train_command(*train_options(write_pictures(tmp_path / "pictures"), tmp_path / out))
    assert isinstance(result.exception, InputError)
    assert "Cannot write" in str(result.exception)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_checkpoint_of_another_run_is_not_replaced(tmp_path):
    save_checkpoint(tmp_path / "best.safetensors", {"precious": torch.ones(3)}, {"backbone": "resnet18"})
    before = (tmp_path / "best.safetensors").read_bytes()
    with pytest.raises(InputError, match=r"best\.safetensors is of another run"):
        run(tmp_path)
    assert (tmp_path / "best.safetensors").read_bytes() == before


@pytest.fixture(scope="module")
def one_epoch(tmp_path_factory):
    """The folder of a run of one epoch."""
    folder = tmp_path_factory.mktemp("one epoch")
    run(folder, replace(RECIPE, epochs=1))
    return folder


@pytest.mark.parametrize(
    ("part", "content", "why"),
    [
        ("history", None, "'history' in the metadata is wrong"),
        ("history", "three", "'history' in the metadata is wrong"),
        ("history", [{"epoch": 1}], r"'history\.0\.lr' in the metadata is wrong"),
        ("history", [[1, 2]], r"'history\.0' in the metadata is wrong"),
        ("optimizer", {}, "param_groups"),
        ("model", {}, r"Missing key.*bn1\.weight"),
        ("description", 3, "is not the state of a run"),
    ],
)
def test_a_damaged_state_of_a_run_is_one_sentence(part, content, why, one_epoch, tmp_path):
    torch.save({**torch.load(one_epoch / "last.pt", weights_only=True), part: content}, tmp_path / "last.pt")
    with pytest.raises(InputError, match=why) as caught:
        run(tmp_path, replace(RECIPE, epochs=1))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_state_of_a_run_is_one_sentence(tmp_path):
    (tmp_path / "last.pt").write_bytes(b"precious")
    with pytest.raises(InputError, match=r"last\.pt is not the state of a run"):
        run(tmp_path)
    assert (tmp_path / "last.pt").read_bytes() == b"precious"


def test_too_few_validation_classes_are_one_sentence():
    with pytest.raises(InputError, match="at least five classes"):
        train(build("resnet-small", 6, 1), patterns(), RECIPE, PREPROCESS, val=patterns(n_classes=4))


def test_the_training_benchmark_measures_an_epoch():
    from benchmarks.training import measure

    rate, waits = measure("resnet-small", batch=8, n=16, size=16, device="cpu")
    assert rate > 0
    assert waits is None  # there is no device to wait for
