"""More entries of flex_rules.RULES: what becomes of scores."""

from __future__ import annotations

import math

import torch
from torch.nn.attention.flex_attention import and_masks

from flex_rules import SQUARE, causal, rule


@rule()
def alibi(call):
    slopes = torch.exp2(-((torch.arange(call.heads, dtype=torch.float32) + 1) * 8.0 / call.heads)).to(call.device)

    def alibi_mod(score, b, h, q_idx, kv_idx):
        bias = (kv_idx - q_idx) * slopes[h]
        return score + bias

    return {"mask": causal, "score": alibi_mod}


@rule()
def symmetric_alibi(call):
    slopes = torch.exp2(-(torch.arange(call.heads, dtype=torch.float32) + 1)).to(call.device)
    return {"score": lambda score, b, h, q_idx, kv_idx: score - slopes[h] * (q_idx - kv_idx).abs()}


@rule()
def alibi_computed_from_the_head(call):
    """attention-gym's generate_alibi_bias, without a table."""
    heads = call.heads

    def alibi_mod(score, b, h, q_idx, kv_idx):
        scale = torch.exp2(-((h + 1) * 8.0 / heads))
        return score + (kv_idx - q_idx) * scale

    return {"mask": causal, "score": alibi_mod}


@rule()
def softcap(call):
    soft_cap = 20.0

    def tanh_softcap(score, b, h, q_idx, kv_idx):
        return soft_cap * torch.tanh(score / soft_cap)

    return {"score": tanh_softcap}


@rule()
def softcap_window_and_causal(call):
    """Gemma 2."""
    cap, window = 2.5, 40

    def capped(score, b, h, q_idx, kv_idx):
        return torch.tanh(score / cap) * cap

    def local(b, h, q_idx, kv_idx):
        return q_idx - kv_idx < window

    return {"mask": and_masks(causal, local), "score": capped}


@rule()
def relative_position(call):
    return {"score": lambda score, b, h, q_idx, kv_idx: score + (q_idx - kv_idx) / 64}


@rule()
def relative_position_table(call):
    """A learned bias for each distance and head, as in Music Transformer and T5 without buckets."""
    table = call.normal(2 * call.longest + 1, call.heads)
    middle = call.longest
    return {"score": lambda score, b, h, q_idx, kv_idx: score + table[q_idx - kv_idx + middle, h]}


@rule()
def t5_buckets_from_a_table(call):
    distance = torch.arange(call.longest)
    large = 16 + (torch.log(distance.clamp(min=1).double() / 16) / math.log(128 / 16) * 16).long()
    buckets = torch.where(distance < 16, distance, large.clamp(max=31)).to(torch.int32).to(call.device)
    weight = call.normal(32, call.heads)

    def t5(score, b, h, q_idx, kv_idx):
        return score + weight[buckets[torch.clamp(q_idx - kv_idx, min=0)], h]

    return {"mask": causal, "score": t5}


@rule()
def t5_bucket_arithmetic(call):
    """transformers' T5 _relative_position_bucket, bidirectional."""
    num_buckets, max_distance = 32, 100
    weight = call.normal(num_buckets, call.heads)

    def bucket(relative_position):
        half = num_buckets // 2
        result = (relative_position > 0).to(torch.long) * half
        relative_position = torch.abs(relative_position)
        max_exact = half // 2
        is_small = relative_position < max_exact
        large = max_exact + (
            torch.log(torch.clamp(relative_position, min=1).float() / max_exact)
            / math.log(max_distance / max_exact) * (half - max_exact)
        ).to(torch.long)
        large = torch.clamp(large, max=half - 1)
        return result + torch.where(is_small, relative_position, large)

    def t5(score, b, h, q_idx, kv_idx):
        return score + weight[bucket(kv_idx - q_idx), h]

    return {"score": t5}


@rule(SQUARE)
def swin_relative_table(call):
    """A table over the two-dimensional offset of two pixels of a window."""
    width = 13
    height = -(-call.seqlen_q // width)
    table = call.normal((2 * height - 1) * (2 * width - 1), call.heads)

    def swin(score, b, h, q_idx, kv_idx):
        dy = q_idx // width - kv_idx // width + height - 1
        dx = q_idx % width - kv_idx % width + width - 1
        return score + table[dy * (2 * width - 1) + dx][h]

    return {"score": swin}


@rule()
def pair_bias(call):
    bias = call.normal(call.batch, call.heads, call.seqlen_q, call.seqlen_kv)
    return {"score": lambda score, b, h, q_idx, kv_idx: score + bias[b, h, q_idx, kv_idx]}


@rule()
def temperature_of_each_position(call):
    """Llama 4."""
    floor_scale, attn_scale = 40.0, 0.1

    def tempered(score, b, h, q_idx, kv_idx):
        return score * (torch.log(torch.floor((q_idx + 1.0) / floor_scale) + 1.0) * attn_scale + 1.0)

    return {"mask": causal, "score": tempered}


@rule()
def log_n_scaling(call):
    """Scalable softmax: scores times s log n, n the keys that a query sees."""
    s = call.normal(call.heads).abs()
    return {"mask": causal, "score": lambda score, b, h, q_idx, kv_idx: score * (s[h] * torch.log((q_idx + 1).to(torch.float32)))}


@rule()
def masked_by_minus_infinity(call):
    window = 21

    def score_mod(score, b, h, q_idx, kv_idx):
        return torch.where((q_idx >= kv_idx) & (q_idx - kv_idx < window), score, -float("inf"))

    return {"score": score_mod}


@rule()
def masked_by_minus_infinity_inside_a_table(call):
    bias = call.normal(call.seqlen_q, call.seqlen_kv)
    bias[call.normal(call.seqlen_q, call.seqlen_kv) > 0.5] = -math.inf
    return {"score": lambda score, b, h, q_idx, kv_idx: score + bias[q_idx, kv_idx]}


@rule()
def several_captured_numbers(call):
    cap, slope, bonus, near = 15.0, 0.03125, 0.75, 5

    def score_mod(score, b, h, q_idx, kv_idx):
        score = cap * torch.tanh(score / cap)
        score = score - slope * (q_idx - kv_idx).abs()
        return torch.where((q_idx - kv_idx).abs() < near, score + bonus, score)

    return {"score": score_mod}


@rule()
def bias_on_key_zero(call):
    """An additive logit on the first key (MiMo), which is no sink."""
    sink = call.normal(call.heads)
    return {"mask": causal, "score": lambda score, b, h, q_idx, kv_idx: torch.where(kv_idx == 0, score + sink[h], score)}
