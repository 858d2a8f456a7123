"""Measure PADDLE's fused GPU code against its plain version and the dense reference, on a CUDA device.

    python -m benchmarks.gpu [PART ...]

Parts: ``agreement`` (how far the answers are from the published algorithm in float64), ``compare`` (milliseconds for
10,000 tasks), ``stopping`` (with a tolerance), ``scaling`` (how time grows with each size), ``default`` (evidence with
and without its metric, beside SimpleShot and PADDLE) and ``table1`` (the methods of the paper; it runs only when
it is named). Features are on the GPU, and times include drawing the tasks. The tables are Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import cache

import torch

from benchmarks.dense import paddle_dense, published
from benchmarks.features import make_features
from benchmarks.measure import Part, growth, plain, run_parts, seconds, show_parts
from manyway import FeatureSet, Tasks, TaskSpec, evaluate, sample_tasks, solve
from manyway.core.kernels import tensor_cores
from manyway.core.ops import class_sums
from manyway.core.transforms import transform
from manyway.methods.paddle.forms import GramForm, prototype_form
from manyway.sampling.embedded import load_glyphs

CASES = [(20, 5, 512, 600), (20, 20, 512, 600), (160, 5, 512, 1300), (160, 20, 512, 1300), (227, 20, 512, 400)]
CASES += [(160, 20, 640, 1300)]  # K, shots, d, samples per class
N_TASKS = 10_000


@cache
def rates() -> tuple[float, float]:
    """Bytes per second of a large copy, read and written, and float32 operations per second of a large product."""
    block = torch.empty(2**29, device="cuda").normal_()
    copied = torch.empty_like(block)
    bandwidth = 2 * block.nbytes / seconds(lambda: copied.copy_(block))
    a = torch.randn(8192, 8192, device="cuda")
    return bandwidth, 2 * 8192**3 / seconds(lambda: a @ a)


def stages(features: FeatureSet, spec: TaskSpec) -> list[float]:
    """Seconds for all tasks: drawing, scaling, class sums, all statistics, and the iterations."""
    from manyway.methods.paddle.kernel import iterate

    tasks = sample_tasks(features, spec, count=N_TASKS)
    scaled = transform(tasks, "range")
    centre = scaled.query.mean(1, keepdim=True)
    form = prototype_form(scaled, "gram")
    assert isinstance(form, GramForm)
    return [
        seconds(lambda: sample_tasks(features, spec, count=N_TASKS)),
        seconds(lambda: transform(tasks, "range")),
        seconds(lambda: class_sums(scaled, centre)),
        seconds(lambda: prototype_form(scaled, "gram")),
        seconds(lambda: iterate(form, weight=1.0, eps=1e-6, max_iter=100)),
    ]


def compare(options: argparse.Namespace) -> Iterator[list[object]]:
    """Milliseconds for 10,000 tasks; slow variants are timed on fewer tasks and extrapolated."""
    bandwidth, rate = rates()
    for n_classes, shots, n_features, per_class in CASES:
        features = make_features(n_classes, per_class, n_features, "cuda")
        spec = TaskSpec(shots=shots)
        whole = _whole(features, spec, N_TASKS)
        with plain():
            unfused = _whole(features, spec, 2000) * N_TASKS / 2000
        dense = _dense(sample_tasks(features, spec, count=40)) * N_TASKS / 40
        read = N_TASKS * (n_classes * shots + spec.n_query) * n_features * 4 / bandwidth
        products = 2 * N_TASKS * spec.n_query * (spec.n_query + n_classes) * n_features / rate
        loop = 2 * N_TASKS * spec.n_query**2 * n_classes * 100 / rate
        times = [1e3 * time for time in stages(features, spec)]
        ours = [f"**{1e3 * whole:.1f}**", 1e3 * unfused, 1e3 * dense, f"{dense / whole:.0f}×"]
        floor = f"{1e3 * read:.3g} + {1e3 * (products + loop):.3g}"
        yield [n_classes, shots, n_features, *times, *ours, floor]
        del features
        torch.cuda.empty_cache()


def _whole(features: FeatureSet, spec: TaskSpec, n_tasks: int, tol: float | None = None) -> float:
    return seconds(lambda: evaluate("paddle", features, spec, n_tasks, tol=tol), repeats=5)


def _dense(tasks: Tasks) -> float:
    support, query = tasks.support, tasks.query
    return seconds(lambda: paddle_dense(support, tasks.support_labels, query, tasks.n_classes), repeats=1)


def agreement(options: argparse.Namespace) -> Iterator[list[object]]:
    """Fused and plain code in float32 against each other and against the published algorithm in float64."""
    letters = load_glyphs().to("cuda")
    for name, features, shots in (("random", make_features(160, 300, 512, "cuda"), 20), ("letters", letters, 5)):
        tasks = sample_tasks(features, TaskSpec(shots=shots), count=1000)
        fast, exact = solve("paddle", tasks), torch.cat([published(tasks[i : i + 100]) for i in range(0, 1000, 100)])
        with plain():
            slow = solve("paddle", tasks)
        for words, one, other in (
            ("fused − published", fast.probabilities, exact),
            ("plain − published", slow.probabilities, exact),
            ("fused − plain", fast.probabilities, slow.probabilities),
        ):
            apart = (one.double() - other.double()).abs().amax((1, 2))
            differ, far = int((one.argmax(-1) != other.argmax(-1)).sum()), int((apart > 1e-5).sum())
            yield [name, features.n_classes, words, differ, far, f"{float(apart.max()):.1e}"]


SCALING_BASE = {"K": 160, "|Q|": 75, "d": 512, "shots": 5, "tasks": 4000}
SCALING = {
    "tasks": [4000, 8000, 16000],
    "K": [80, 160, 320, 640],
    "|Q|": [32, 64, 128],
    "d": [256, 512, 1024],
    "shots": [1, 5, 20],
}


def scaled(at: Mapping[str, int]) -> tuple[float]:
    """Seconds of an evaluation of these sizes."""
    features = make_features(at["K"], 100, at["d"], "cuda")
    return (_whole(features, TaskSpec(shots=at["shots"], n_query=at["|Q|"]), at["tasks"]),)


def stopping(options: argparse.Namespace) -> Iterator[list[object]]:
    """Milliseconds and iterations for 10,000 tasks with a tolerance, fused and plain."""
    for n_classes, shots in [(20, 5), (160, 20)]:
        features, spec = make_features(n_classes, 300, 512, "cuda"), TaskSpec(shots=shots)
        tasks = sample_tasks(features, spec, count=N_TASKS)
        for tol in (None, 1e-6, 1e-4, 1e-3):
            fast = solve("paddle", tasks, tol=tol)
            whole = _whole(features, spec, N_TASKS, tol)
            with plain():
                slow = solve("paddle", tasks[:1000], tol=tol)
                unfused = _whole(features, spec, 1000, tol) * N_TASKS / 1000
            steps = [float(one.n_iter.double().mean()) for one in (fast, slow)]
            differ = int((fast.labels[:1000] != slow.labels).sum())
            converged = f"{float(fast.converged.double().mean()):.1%}"
            yield [n_classes, shots, str(tol), 1e3 * whole, 1e3 * unfused, *steps, converged, differ]


def _method(name: str, features: FeatureSet, spec: TaskSpec, count: int) -> float:
    evaluate(name, features, spec, min(count, 4))
    return seconds(lambda: evaluate(name, features, spec, count), repeats=1, warm=0)


TABLE1 = ("baseline", "ici", "bd-cspn", "pt-map", "laplacianshot", "tim", "alpha-tim", "paddle")


def table1(options: argparse.Namespace) -> Iterator[list[object]]:
    """Seconds for 10,000 tasks of each of the paper's methods, at tiered-ImageNet's size."""
    features, whole = make_features(160, 1300, 512, "cuda"), 0.0
    copy = rates()[0]
    for name in TABLE1:
        count = options.tasks if name in ("baseline", "ici", "tim", "alpha-tim") else N_TASKS
        times = [_method(name, features, TaskSpec(shots=shots), count) * N_TASKS / count for shots in (5, 10, 20)]
        whole += sum(times)
        yield [name, count, *times, sum(times)]
    yield ["all", "", "", "", "", whole]
    for name, steps in (("tim", 2000), ("alpha-tim", 1000)):
        floors = [steps * N_TASKS * _step_products(160 * shots + 75) for shots in (5, 10, 20)]
        yield [f"{name}: its two products alone, float16", 66, *floors, sum(floors)]
        # Samples twice, slopes written and read, w and the two means of Adam read and written, w as float16 likewise.
        moved = [(2 * 512 * n + 2 * 160 * n + 14 * 160 * 512) * 2 for n in (875, 1675, 3275)]
        floors = [steps * N_TASKS * one / copy for one in moved]
        yield [f"{name}: its memory traffic alone", 66, *floors, sum(floors)]


def _step_products(n_rows: int, at_once: int = 66) -> float:
    """Seconds per task of the two products of a step: logits of the samples, and the gradient."""
    z, w, slopes = (
        torch.randn(at_once, *shape, device="cuda").half() for shape in ((n_rows, 512), (512, 160), (n_rows, 160))
    )
    return seconds(lambda: [(z @ w, slopes.mT @ z) for _ in range(20)], repeats=5) / 20 / at_once


def default(options: argparse.Namespace) -> Iterator[list[object]]:
    """Seconds of the whole default method for 10,000 tasks, and the floor of its metric."""
    features = make_features(160, 60, 512).to("cuda")
    runs = (("evidence", {}), ("evidence", {"metric": False}), ("simpleshot", {}), ("paddle", {}))
    for name, params in runs:
        row: list[object] = [name + ("" if not params else ", plain distances")]
        for shots in (5, 20):
            spec = TaskSpec(shots=shots, k_eff=5, n_query=75)

            def whole(spec: TaskSpec = spec, name: str = name, params: dict[str, bool] = params) -> object:
                return evaluate(name, features, spec, n_tasks=N_TASKS, **params)

            row.append(f"{seconds(whole, repeats=3):.3f}")
        yield row
    for exact in (True, False):
        row = ["within-class scatter alone, " + ("float32" if exact else "TF32")]
        for shots in (5, 20):
            block = torch.randn(500, 160 * shots, 512, device="cuda")
            with nullcontext() if exact else tensor_cores(block):
                row.append(f"{seconds(lambda block=block: block.mT @ block) * N_TASKS / 500:.3f}")
        yield row


PARTS = {
    "agreement": Part(
        "Agreement, of 1,000 tasks",
        "features | K | compared | labels that differ | tasks above 1e-5 | largest difference of a probability",
        agreement,
    ),
    "compare": Part(
        "PADDLE, milliseconds for 10,000 tasks",
        "K | shots | d | drawing | scaling | class sums | statistics | 100 iterations | **whole** | plain torch "
        "| dense | dense / whole | rows once + products",
        compare,
    ),
    "stopping": Part(
        "With a tolerance, 10,000 tasks, d = 512",
        "K | shots | tol | fused, ms | plain, ms | iterations, fused | iterations, plain | converged "
        "| labels that differ, of 1,000 tasks",
        stopping,
    ),
    "scaling": Part(
        "Scaling: 4,000 tasks, K = 160, |Q| = 75, d = 512, 5 shots unless varied",
        "grows | sizes | ms | exponent",
        lambda options: growth(SCALING_BASE, SCALING, scaled),
    ),
    "default": Part(
        "Seconds for 10,000 tasks, K = 160, d = 512, drawing and calibration included",
        "method | 5 shots | 20 shots",
        default,
    ),
    "table1": Part(
        "Seconds for 10,000 tasks, K = 160, d = 512",
        "method | timed on | 5 shots | 10 shots | 20 shots | together",
        table1,
        usual=False,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=N_TASKS, help="time slow methods of table1 on fewer, multiplied")
    options = run_parts(parser, PARTS)
    bandwidth, rate = rates()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; |Q| = 75, 100 iterations, float32")
    print(f"copy {bandwidth / 1e12:.2f} TB/s, float32 product {rate / 1e12:.1f} TFLOP/s")
    show_parts(PARTS, options)


if __name__ == "__main__":
    main()
