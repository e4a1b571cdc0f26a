"""More entries of flex_rules.RULES: masks that are described by tensors."""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import and_masks, or_masks

from flex_rules import SQUARE, causal, rule


def documents(call, lengths=(40, 1, 27, 80)):
    """Each token's document, int32 [longest]; the last document takes what is left."""
    ids = torch.full((call.longest,), len(lengths), dtype=torch.int32)
    start = 0
    for number, length in enumerate(lengths):
        ids[start : start + length] = number
        start += length
    return ids.to(call.device)


@rule()
def document(call):
    document_id = documents(call)
    return {"mask": lambda b, h, q_idx, kv_idx: document_id[q_idx] == document_id[kv_idx]}


@rule()
def document_and_causal(call):
    document_id = torch.stack([documents(call, (7 + 30 * i, 60)) for i in range(call.batch)])

    def document_mask(b, h, q_idx, kv_idx):
        return document_id[b, q_idx] == document_id[b, kv_idx]

    return {"mask": and_masks(document_mask, causal)}


@rule()
def packed_with_positions_inside_the_document(call):
    """attention-gym's generate_doc_mask_mod: an inner rule sees positions counted from its document's start."""
    document_id = documents(call)
    offsets = torch.tensor([0, 40, 41, 68, 148], dtype=torch.int32, device=call.device)
    window = 9

    def inner(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx < window) | (kv_idx < 2)

    def doc_mask_mod(b, h, q_idx, kv_idx):
        same_doc = document_id[q_idx] == document_id[kv_idx]
        q_logical = q_idx - offsets[document_id[q_idx]]
        kv_logical = kv_idx - offsets[document_id[kv_idx]]
        return same_doc & inner(b, h, q_logical, kv_logical)

    return {"mask": doc_mask_mod}


@rule()
def prefix_lm_of_each_document(call):
    document_id = documents(call)
    prefix_end = torch.tensor([12, 41, 50, 70, 160], dtype=torch.int64, device=call.device)

    def mask(b, h, q_idx, kv_idx):
        same = document_id[q_idx] == document_id[kv_idx]
        return same & ((q_idx >= kv_idx) | (kv_idx < prefix_end[document_id[q_idx]]))

    return {"mask": mask}


@rule()
def padding_on_the_right(call):
    lengths = call.ints([call.seqlen_kv - 1 - 60 * i for i in range(call.batch)])
    return {"mask": lambda b, h, q_idx, kv_idx: kv_idx < lengths[b]}


@rule()
def padding_on_the_left_and_causal(call):
    starts = torch.tensor([60 * i for i in range(call.batch)], device=call.device)
    return {"mask": lambda b, h, q_idx, kv_idx: (kv_idx >= starts[b]) & (q_idx >= kv_idx)}


@rule()
def padding_by_a_bool_mask(call):
    """transformers' attention_mask."""
    attention_mask = torch.ones(call.batch, call.seqlen_kv, dtype=torch.bool, device=call.device)
    attention_mask[-1, : call.seqlen_kv // 3] = False
    return {"mask": lambda b, h, q_idx, kv_idx: attention_mask[b, kv_idx]}


@rule()
def padding_by_an_int_mask(call):
    attention_mask = torch.ones(call.batch, call.seqlen_kv, dtype=torch.int64, device=call.device)
    attention_mask[-1, 5:50] = 0
    return {"mask": lambda b, h, q_idx, kv_idx: attention_mask[b][kv_idx] == 1}


@rule()
def image_blocks_inside_causal(call):
    """Gemma 3: tokens of one image see each other, all else is causal."""
    image = torch.full((call.longest,), -1, dtype=torch.int32)
    image[10:42] = 0
    image[60:75] = 1
    image = image.to(call.device)

    def blocks(b, h, q_idx, kv_idx):
        return (image[q_idx] >= 0) & (image[q_idx] == image[kv_idx])

    return {"mask": or_masks(causal, blocks)}


@rule()
def shared_question(call):
    """GRPO and reward models: several answers after one question, none sees another."""
    answer = torch.zeros(call.longest, dtype=torch.int32)
    answer[20:70] = 1
    answer[70:110] = 2
    answer[110:] = 3
    answer = answer.to(call.device)

    def shared_prefix(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & ((answer[kv_idx] == 0) | (answer[q_idx] == answer[kv_idx]))

    return {"mask": shared_prefix}


@rule()
def bigbird(call):
    """Blocks chosen at random, beside the diagonal and the first block."""
    block = 16
    count = -(-call.longest // block)
    chosen = (torch.rand(count, count, generator=torch.Generator().manual_seed(3)) < 0.2).to(call.device)

    def bigbird_mask(b, h, q_idx, kv_idx):
        q_block, kv_block = q_idx // block, kv_idx // block
        return chosen[q_block, kv_block] | (kv_block == 0) | ((q_block - kv_block).abs() <= 1)

    return {"mask": bigbird_mask}


@rule()
def selected_blocks_of_each_head(call):
    """Block-sparse top-k selection (NSA, MoBA)."""
    size = 32
    rows, columns = -(-call.seqlen_q // size), -(-call.seqlen_kv // size)
    scores = torch.rand(call.batch, call.heads, rows, columns, generator=torch.Generator().manual_seed(4))
    selected = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, scores.topk(2).indices, True).to(call.device)
    return {"mask": lambda b, h, q_idx, kv_idx: selected[b, h, q_idx // size, kv_idx // size]}


@rule(SQUARE)
def tree(call):
    """Verification of a tree of drafted tokens (Medusa, EAGLE): a token sees itself and its ancestors."""
    ancestors = torch.eye(call.seqlen_q, dtype=torch.bool)
    for node in range(1, call.seqlen_q):
        ancestors[node] |= ancestors[(node - 1) // 3]
    ancestors = ancestors.to(call.device)
    return {"mask": lambda b, h, q_idx, kv_idx: ancestors[q_idx, kv_idx]}


@rule()
def tree_by_intervals(call):
    """The same in linear memory: a depth-first order, where the subtree of a token ends at end[token]."""
    ends = [token + 1 + (call.longest - token - 1) // (1 + token % 5) for token in range(call.longest)]
    end = torch.tensor(ends, dtype=torch.int64, device=call.device)
    return {"mask": lambda b, h, q_idx, kv_idx: (kv_idx <= q_idx) & (q_idx < end[kv_idx])}


@rule()
def events_in_time(call):
    """Keys that happened at most `horizon` before the query and not after it."""
    generator = torch.Generator().manual_seed(5)
    times = torch.rand(call.batch, call.longest, generator=generator).cumsum(-1).to(call.device)
    horizon = 8.5

    def time_mask(b, h, q_idx, kv_idx):
        age = times[b, q_idx] - times[b, kv_idx]
        return (age >= 0) & (age < horizon)

    return {"mask": time_mask}


@rule()
def intervals_of_media(call):
    """Flamingo: a text token sees the keys of the last image before it."""
    first = torch.arange(call.seqlen_q) // 30 * 20
    first, last = first.to(call.device), (first + 20).clamp(max=call.seqlen_kv).to(call.device)
    return {"mask": lambda b, h, q_idx, kv_idx: (first[q_idx] <= kv_idx) & (kv_idx < last[q_idx])}


@rule()
def groups_and_time_with_a_bias(call):
    """A mask and a score that share a tensor."""
    document_id = documents(call)

    def mask(b, h, q_idx, kv_idx):
        return document_id[q_idx] == document_id[kv_idx]

    def score(score, b, h, q_idx, kv_idx):
        return score + document_id[kv_idx] * 0.25

    return {"mask": mask, "score": score}


@rule()
def spatial_and_edge_bias(call):
    """Graphormer: a bias for the distance of two nodes and one for the kind of their edge."""
    generator = torch.Generator().manual_seed(6)
    shape = (call.seqlen_q, call.seqlen_kv)
    distance = torch.randint(20, shape, generator=generator, dtype=torch.uint8).to(call.device)
    edge = torch.randint(4, shape, generator=generator, dtype=torch.int16).to(call.device)
    spatial, kinds = call.normal(20, call.heads), call.normal(4)

    def graphormer(score, b, h, q_idx, kv_idx):
        return score + spatial[distance[q_idx, kv_idx].long(), h] + kinds[edge[q_idx, kv_idx].to(torch.int32)]

    return {"score": graphormer}
