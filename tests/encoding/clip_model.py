"""A real CLIP model of sentence-transformers, tiny and untrained: ``make clip`` runs this file.

It is no part of ``make test`` because importing sentence-transformers takes longer than all its tests may.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from manyway.cli import main
from manyway.encoding.encoders import ImageEncoder, open_encoder

WORDS = ["<|startoftext|>", "<|endoftext|>", "red", "green", "blue"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """The folder of a CLIP model for pictures of 16 pixels and texts of the words above."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, PreTrainedTokenizerFast

    start, end = WORDS[:2]
    tokens = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token=end))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(start, 0), (end, 1)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens, bos_token=start, eos_token=end, pad_token=end, unk_token=end, model_max_length=16
    )
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {"vocab_size": 5, "max_position_embeddings": 16, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = {"image_size": 16, "patch_size": 8}
    config = CLIPConfig(text_config=small | text, vision_config=small | vision, projection_dim=12)
    pictures = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    folder = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    CLIPModel(config).save_pretrained(folder)
    CLIPProcessor(pictures, tokenizer).save_pretrained(folder)
    return folder


def test_pictures_and_texts_get_the_features_that_the_model_gives(model):
    from sentence_transformers import SentenceTransformer

    encoder = open_encoder(f"sentence-transformers:{model}")
    assert isinstance(encoder, ImageEncoder)
    assert (encoder.preprocess.resize, encoder.preprocess.crop) == (16, 16)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (3, 3, 16, 16), dtype=torch.uint8, generator=generator)
    network = SentenceTransformer(str(model), device="cpu")
    pictures = [Image.fromarray(each.permute(1, 2, 0).numpy()) for each in pixels]
    torch.testing.assert_close(encoder.encode(pixels), network.encode(pictures, convert_to_tensor=True))
    texts = ["red", "green blue", "red " * 50]
    torch.testing.assert_close(encoder.texts.encode(texts), network.encode(texts, convert_to_tensor=True))


def test_the_command_labels_pictures_by_class_names(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYWAY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pile").mkdir()
    for n in range(6):
        Image.new("RGB", (40, 30), (250 - n, 0, 0) if n < 3 else (0, 0, 250 - n)).save(tmp_path / "pile" / f"{n}.png")
    (tmp_path / "names.txt").write_text("\n".join(WORDS[2:]))
    words = ["manyway", "label", "pile", "--class-names", "names.txt", "--encoder"]
    monkeypatch.setattr(sys, "argv", [*words, f"sentence-transformers:{model}"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    with (tmp_path / "labels.csv").open() as file:
        labels = {row["item"]: row["label"] for row in csv.DictReader(file)}
    # The model has learned nothing: pictures that are alike get the same label, whichever it is.
    assert len(labels) == 6
    assert len({labels[f"{n}.png"] for n in range(3)}) == len({labels[f"{n}.png"] for n in range(3, 6)}) == 1
