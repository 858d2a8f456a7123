"""MiniLM: a BERT of six layers that embeds sentences, read from the files of ``all-MiniLM-L6-v2``.

Written here in torch, because loading the ``transformers`` package takes longer than encoding
hundreds of sentences.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

MAX_TOKENS = 256  # as the model was trained; the end of a longer text is not read
_HEADS = 12
_EPS = 1e-12
_BATCH = 64


class MiniLM:
    """Sentence embeddings: the mean over the tokens of a text, with norm 1.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        The weights under the names of the model's file, on the device where to compute.
    tokenizer : tokenizers.Tokenizer
    """

    def __init__(self, tensors: Mapping[str, Tensor], tokenizer: Any) -> None:
        tokenizer.enable_truncation(MAX_TOKENS)
        tokenizer.enable_padding(pad_id=0)
        self.tokenizer = tokenizer
        self.tensors = tensors
        self.n_layers = sum(name.endswith(".intermediate.dense.bias") for name in tensors)

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> Tensor:
        """Embeddings [n, d] of texts, on the CPU.

        They are computed in batches of similar length.
        """
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        parts = []
        for start in range(0, len(order), _BATCH):
            encoded = self.tokenizer.encode_batch(
                [texts[row] for row in order[start : start + _BATCH]]
            )
            tokens, mask = torch.tensor(
                [[each.ids, each.attention_mask] for each in encoded]
            ).unbind(1)
            parts.append(self._embed(tokens, mask).cpu())
        return torch.cat(parts)[torch.tensor(order).argsort()].clone()

    def _embed(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Embeddings [n, d] of texts as tokens [n, length].

        ``mask`` [n, length] is 1 where a token is no padding.
        """
        names = ("word", "position", "token_type")
        words, positions, kinds = (
            self.tensors[f"embeddings.{name}_embeddings.weight"] for name in names
        )
        tokens = tokens.to(words.device)
        mask = mask.to(words.device)
        # Every token is of kind 0: a text is one sentence.
        hidden = self._norm("embeddings", words[tokens] + (positions[: tokens.shape[1]] + kinds[0]))
        for i in range(self.n_layers):
            hidden = self._layer(f"encoder.layer.{i}", hidden, mask.bool())
        kept = mask.unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * kept).sum(1) / kept.sum(1), dim=1)

    def _layer(self, layer: str, hidden: Tensor, mask: Tensor) -> Tensor:
        linear = (
            self._linear(f"{layer}.attention.self.{name}", hidden)
            for name in ("query", "key", "value")
        )
        query, key, value = (
            values.view(*mask.shape, _HEADS, -1).transpose(1, 2) for values in linear
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
        mixed = self._linear(f"{layer}.attention.output.dense", mixed.transpose(1, 2).flatten(2))
        hidden = self._norm(f"{layer}.attention.output", hidden + mixed)
        wide = F.gelu(self._linear(f"{layer}.intermediate.dense", hidden))
        return self._norm(f"{layer}.output", hidden + self._linear(f"{layer}.output.dense", wide))

    def _linear(self, name: str, values: Tensor) -> Tensor:
        return F.linear(values, self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"])

    def _norm(self, name: str, values: Tensor) -> Tensor:
        weight, bias = (self.tensors[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return F.layer_norm(values, weight.shape, weight, bias, _EPS)
