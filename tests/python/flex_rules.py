"""Public FlexAttention rules, written as their users write them: mask_mod(b, h, q_idx, kv_idx), score_mod(score, b, h, q_idx,
kv_idx). Each entry of RULES makes the functions for a Call; test_flex_rules.py runs them. Here are the masks by position;
flex_score_rules.py and flex_table_rules.py add more."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks


@dataclass(frozen=True)
class Call:
    """Sizes of a call and where its tensors are."""

    batch: int
    heads: int
    seqlen_q: int
    seqlen_kv: int
    device: str

    def ints(self, values):
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def normal(self, *shape):
        return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(self.device)

    @property
    def longest(self):
        return max(self.seqlen_q, self.seqlen_kv)


SQUARE, ANY = "square", "any"
RULES: dict[str, tuple] = {}  # name -> (function of a Call that gives {"mask": ..., "score": ...}, SQUARE or ANY)


def rule(lengths=ANY):
    """Registers a maker of a rule. SQUARE: the rule makes sense for equal lengths only."""
    def register(make):
        RULES[make.__name__] = (make, lengths)
        return make

    return register


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


SLIDING_WINDOW = 33  # a global constant, as in attention-gym's examples


def sliding_window_causal(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx <= SLIDING_WINDOW)


@rule()
def plain_causal(call):
    return {"mask": causal}


@rule()
def causal_bottom_right_by_a_captured_offset(call):
    offset = call.seqlen_kv - call.seqlen_q
    return {"mask": lambda b, h, q_idx, kv_idx: q_idx + offset >= kv_idx}


@rule()
def causal_by_an_offset_in_a_tensor_of_no_dimensions(call):
    offset = torch.tensor(call.seqlen_kv - call.seqlen_q, dtype=torch.int32, device=call.device)

    def with_offset(b, h, q_idx, kv_idx):
        return q_idx + offset >= kv_idx

    return {"mask": with_offset}


@rule()
def causal_without_the_diagonal(call):
    return {"mask": lambda b, h, q_idx, kv_idx: q_idx > kv_idx}


@rule()
def window_from_a_global_constant(call):
    return {"mask": sliding_window_causal}


@rule()
def bidirectional_window(call):
    window = 17
    return {"mask": lambda b, h, q_idx, kv_idx: torch.abs(q_idx - kv_idx) <= window}


@rule()
def window_in_a_default_argument(call):
    def local(b, h, q_idx, kv_idx, left=20, right=3):
        return (q_idx - kv_idx <= left) & (kv_idx - q_idx <= right)

    return {"mask": local}


@rule()
def window_by_functools_partial(call):
    def windowed(window, b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx < window)

    return {"mask": functools.partial(windowed, 29)}


@rule()
def prefix_lm(call):
    prefix_length = 19

    def prefix_mask(b, h, q_idx, kv_idx):
        return kv_idx < prefix_length

    return {"mask": or_masks(prefix_mask, causal)}


@rule()
def prefix_lm_of_each_sequence(call):
    lengths = call.ints([3 + 50 * i for i in range(call.batch)])
    return {"mask": lambda b, h, q_idx, kv_idx: (kv_idx < lengths[b]) | (q_idx >= kv_idx)}


@rule()
def chunked_local_attention(call):
    chunk = 32
    return {"mask": lambda b, h, q_idx, kv_idx: (q_idx // chunk == kv_idx // chunk) & (q_idx >= kv_idx)}


@rule()
def sink_tokens_and_a_window(call):
    sinks, window = 4, 24

    def streaming_llm(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & ((kv_idx < sinks) | (q_idx - kv_idx < window))

    return {"mask": streaming_llm}


@rule()
def dilated_window(call):
    window, dilation = 40, 4
    return {"mask": lambda b, h, q_idx, kv_idx: (abs(q_idx - kv_idx) <= window) & ((q_idx - kv_idx) % dilation == 0)}


@rule()
def global_and_local(call):
    """Longformer: some tokens see and are seen by all."""
    is_global = torch.zeros(call.longest, dtype=torch.bool, device=call.device)
    is_global[::37] = True

    def longformer(b, h, q_idx, kv_idx):
        local = (q_idx - kv_idx).abs() <= 8
        return local | is_global[q_idx] | is_global[kv_idx]

    return {"mask": longformer}


@rule(SQUARE)
def natten_1d(call):
    kernel, length = 13, call.seqlen_q

    def natten(b, h, q_idx, kv_idx):
        center = q_idx.clamp(kernel // 2, (length - 1) - kernel // 2)
        return (center - kv_idx).abs() <= kernel // 2

    return {"mask": natten}


@rule(SQUARE)
def natten_2d(call):
    """PyTorch's blog post on FlexAttention, generate_natten."""
    canvas_w, kernel_h, kernel_w = 11, 5, 7
    canvas_h = -(-call.seqlen_q // canvas_w)

    def get_x_y(idx):
        return idx // canvas_w, idx % canvas_w

    def natten_mask_mod(b, h, q_idx, kv_idx):
        q_x, q_y = get_x_y(q_idx)
        kv_x, kv_y = get_x_y(kv_idx)
        kernel_x = torch.clamp(q_x, kernel_h // 2, (canvas_h - 1) - kernel_h // 2)
        kernel_y = torch.clamp(q_y, kernel_w // 2, (canvas_w - 1) - kernel_w // 2)
        hori_mask = (kernel_x - kv_x).abs() <= kernel_h // 2
        vert_mask = (kernel_y - kv_y).abs() <= kernel_w // 2
        return hori_mask & vert_mask

    return {"mask": natten_mask_mod}


@rule(SQUARE)
def block_diffusion(call):
    """BD3-LM: a noisy half that sees its own block and clean blocks before it, then a clean half, causal by blocks."""
    half, block = call.seqlen_q // 2, 16

    def block_diff_mask(b, h, q_idx, kv_idx):
        x0_flag_q = q_idx >= half
        x0_flag_kv = kv_idx >= half
        block_q = torch.where(x0_flag_q == 1, (q_idx - half) // block, q_idx // block)
        block_kv = torch.where(x0_flag_kv == 1, (kv_idx - half) // block, kv_idx // block)
        block_diagonal = (block_q == block_kv) & (x0_flag_q == x0_flag_kv)
        offset_block_causal = (block_q > block_kv) & (x0_flag_kv == 1) & (x0_flag_q == 0)
        block_causal = (block_q >= block_kv) & (x0_flag_kv == 1) & (x0_flag_q == 1)
        return block_diagonal | offset_block_causal | block_causal

    return {"mask": block_diff_mask}


@rule()
def window_of_each_head(call):
    windows = call.ints([4 << (i % 6) for i in range(call.heads)])
    return {"mask": lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < windows[h])}


@rule()
def some_heads_local(call):
    local_heads, window = 3, 12
    return {"mask": lambda b, h, q_idx, kv_idx: (h >= local_heads) | ((q_idx - kv_idx).abs() < window)}


@rule()
def nothing_masked(call):
    return {"mask": noop_mask}


@rule()
def composed_with_and_masks(call):
    def window(size):
        def inner(b, h, q_idx, kv_idx):
            return q_idx - kv_idx <= size

        return inner

    return {"mask": and_masks(causal, or_masks(window(6), lambda b, h, q_idx, kv_idx: kv_idx % 10 == 0))}


@rule()
def not_and_exclusive_or(call):
    def odd(b, h, q_idx, kv_idx):
        return ~((q_idx % 2 == 0) ^ (kv_idx % 2 == 0)) & torch.logical_not(q_idx < kv_idx)

    return {"mask": odd}
