"""The rules that are timed, each for Saccade and, in FlexAttention's signatures, for FlexAttention and the float64 reference."""
from __future__ import annotations

import dataclasses
from typing import Any, Callable

import torch

import saccade

# Timed by --rules, all of them causal as well. At 8192 keys the window is 1024 wide and a document 1024 long.
NAMES = ("window", "alibi", "softcap", "documents")
WINDOWS_IN_LENGTH = 8
CAP = 30.0


@dataclasses.dataclass(frozen=True)
class Rule:
    """arguments: of saccade.attention. mask_mod(b, h, q_idx, kv_idx), score_mod(score, b, h, q_idx, kv_idx): the same, None
    where there is nothing to do."""
    arguments: dict[str, Any]
    mask_mod: Callable | None = None
    score_mod: Callable | None = None

    def kept_pairs(self, length: int, device: str) -> int:
        """Pairs of query and key that the mask keeps, counted; the masks here are the same for every batch and head."""
        if self.mask_mod is None:
            return length * length
        keys = torch.arange(length, device=device)[None]
        return sum(int(self.mask_mod(0, 0, rows[:, None], keys).sum()) for rows in torch.arange(length, device=device).split(1024))


def _causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def make(name: str, heads: int, length: int, device: str) -> Rule:
    """The rule of that name for tensors of these sizes."""
    if name == "full":
        return Rule({})
    if name == "causal":
        return Rule({"causal": True}, _causal)
    part = max(1, length // WINDOWS_IN_LENGTH)
    if name == "window":
        return Rule({"mask": saccade.window(part - 1, 0)}, lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < part))
    if name == "documents":
        ids = torch.arange(length, device=device, dtype=torch.int32) // part
        return Rule({"mask": saccade.causal() & saccade.document(ids)},
                    lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (ids[q_idx] == ids[kv_idx]))
    if name == "alibi":  # Press et al. 2022, section 3: slopes 2^(-8 i / heads)
        slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1, device=device) / heads)
        return Rule({"mask": saccade.causal(), "score": saccade.alibi(slopes)}, _causal,
                    lambda score, b, h, q_idx, kv_idx: score + slopes[h] * (kv_idx - q_idx))
    if name == "softcap":
        return Rule({"mask": saccade.causal(), "score": saccade.softcap(CAP)}, _causal,
                    lambda score, b, h, q_idx, kv_idx: CAP * torch.tanh(score / CAP))
    raise ValueError(f"no rule is called {name!r}; full, causal, {', '.join(NAMES)} are")
