"""The README's Python runs as it stands, and gives what it says."""

import pathlib
import re

import torch

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_the_quick_start_runs():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    names = {}
    exec(compile(blocks[0], str(README), "exec"), names)
    q, positions = names["q"].double(), torch.arange(512)
    scores = 50 * torch.tanh(q @ q.transpose(2, 3) / 8 / 50)
    kept = (positions[:, None] >= positions) & (positions[:, None] // 100 == positions // 100)
    assert torch.allclose(torch.logsumexp(scores.masked_fill(~kept, -torch.inf), -1), names["lse"].double(), atol=1e-5)
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert torch.allclose(names["out"].double(), expected, atol=1e-5)  # the plan's, which came last
