"""EfficientNet-Lite2 on OpenVINO, which takes less than half of the time of torch on a CPU.

The network is written down in OpenVINO's operations rather than converted: the converter traces it by a part of torch
that is going to be removed, which takes seconds.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manyway.encoding.backbones.efficientnet import EfficientNetFeatures

HALF = "f16"
SINGLE = "f32"
_TELEMETRY = "openvino_telemetry"
# In half precision: the layers between these. Those before and after take an eighth of the time, and would make nine
# tenths of the (squared) error.
_FIRST = 2
_LAST = -2
FloatArray = NDArray[np.float32]
# from what comes out of the layer before to what comes out of this one
Layer = Callable[[Any], Any]


@cache
def load_openvino() -> Any:
    """The package. Where its telemetry is installed, it would report each import to its makers; here it cannot."""
    with _hidden(_TELEMETRY):
        return importlib.import_module("openvino")


@contextmanager
def _hidden(module: str) -> Iterator[None]:
    """A block in which a module cannot be imported."""
    found = sys.modules.get(module)
    sys.modules[module] = None  # type: ignore[assignment]  # so Python marks what is not there
    try:
        yield
    finally:
        del sys.modules[module]
        if found is not None:
            sys.modules[module] = found


@cache
def best_precision() -> str:
    """Half precision where the CPU computes with it, as on 64-bit ARM; else single, which gives torch's features."""
    able = load_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return HALF if "FP16" in able else SINGLE


class OpenVINOFeatures:
    """Pooled features [n, 1280] of standardised pictures [n, 3, side, side]: those of a network in torch.

    Parameters
    ----------
    network : EfficientNetFeatures
    side : int
        The size of the pictures in pixels.
    precision : {"f16", "f32"}
        In which most of the network is computed. The first block and the last one are always computed in single
        precision: they take an eighth of the time and would make nine tenths of the error.
    """

    def __init__(self, network: EfficientNetFeatures, side: int, precision: str) -> None:
        openvino = load_openvino()
        core = openvino.Core()
        layers = _layers(network, openvino.opset13)
        parts = [(layers, SINGLE)]
        if precision == HALF:
            parts = [
                (layers[:_FIRST], SINGLE),
                (layers[_FIRST:_LAST], HALF),
                (layers[_LAST:], SINGLE),
            ]
        self._parts = []
        shape = [1, 3, side, side]
        for some, used in parts:
            model = _model(openvino, some, shape)
            shape = list(model.output(0).shape)
            settings = {
                "INFERENCE_PRECISION_HINT": used,
                "INFERENCE_NUM_THREADS": torch.get_num_threads(),
                "PERFORMANCE_HINT": "THROUGHPUT",  # several pictures at a time, each by one core
            }
            self._parts.append(openvino.AsyncInferQueue(core.compile_model(model, "CPU", settings)))

    def __call__(self, images: Tensor) -> Tensor:
        values = list(images.contiguous().numpy()[:, None])
        for part in self._parts:
            values = _through(part, values)
        return torch.from_numpy(np.concatenate(values))


def _through(part: Any, values: Sequence[FloatArray]) -> list[FloatArray]:
    """What a part of the network makes of each picture, several at a time."""
    made: dict[int, FloatArray] = {}

    def keep(request: Any, row: int) -> None:
        made[row] = request.get_output_tensor(0).data.copy()

    part.set_callback(keep)
    for row, given in enumerate(values):
        part.start_async([given], row)
    part.wait_all()
    return [made[row] for row in range(len(values))]


def _model(openvino: Any, layers: Sequence[Layer], shape: Sequence[int]) -> Any:
    """The model of some layers in a row, for one picture at a time."""
    given = openvino.opset13.parameter(shape, openvino.Type.f32)
    values = given
    for layer in layers:
        values = layer(values)
    return openvino.Model([values], [given], "features")


def _layers(features: EfficientNetFeatures, ops: Any) -> list[Layer]:
    """The stem, the blocks, and the head with the pooling of a network, in OpenVINO's operations."""
    network: Any = features.network

    def stem(values: Any) -> Any:
        return _activation(ops, _convolution(ops, network._conv_stem, values))

    def head(values: Any) -> Any:
        values = _activation(ops, _convolution(ops, network._conv_head, values))
        return ops.reduce_mean(values, ops.constant([2, 3]), False)

    return [stem, *(partial(_block, ops, block) for block in network._blocks), head]


def _block(ops: Any, block: Any, given: Any) -> Any:
    """An inverted bottleneck: wider, filtered channel by channel, and narrow again."""
    sizes = block._block_args
    values = given
    if sizes.expand_ratio != 1:
        values = _activation(ops, _convolution(ops, block._expand_conv, values))
    values = _activation(ops, _convolution(ops, block._depthwise_conv, values))
    values = _convolution(ops, block._project_conv, values)
    same_shape = sizes.stride == 1 and sizes.input_filters == sizes.output_filters
    return ops.add(values, given) if block.id_skip and same_shape else values


def _convolution(ops: Any, layer: Any, values: Any) -> Any:
    """A convolution with its zeros around the picture and its bias."""
    zeros = layer.static_padding
    left, right, top, bottom = zeros.padding if isinstance(zeros, nn.ZeroPad2d) else (0, 0, 0, 0)
    down, across = layer.padding
    weights = layer.weight.contiguous().numpy()
    each_channel = layer.groups > 1
    convolve = ops.group_convolution if each_channel else ops.convolution
    filtered = convolve(
        values,
        ops.constant(weights[:, None] if each_channel else weights),
        strides=list(layer.stride),
        pads_begin=[top + down, left + across],
        pads_end=[bottom + down, right + across],
        dilations=[1, 1],
    )
    return ops.add(filtered, ops.constant(layer.bias.view(1, -1, 1, 1).numpy()))


def _activation(ops: Any, values: Any) -> Any:
    return ops.clamp(values, 0.0, 6.0)
