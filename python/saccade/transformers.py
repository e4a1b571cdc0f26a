"""Saccade as an attention implementation of Hugging Face transformers (5.0 and newer).

    import saccade.transformers
    saccade.transformers.register()
    model = AutoModel.from_pretrained(name, attn_implementation="saccade")

Masks are never built: transformers' mask functions (causal, sliding window, padding, chunks, packed sequences, a static cache's
offsets) become rules of the kernel. Inside torch.compile, where a rule cannot be made, they are built as PyTorch's are.
"""

from __future__ import annotations

import functools
import warnings

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import and_masks, causal_mask_function, padding_mask_function, prepare_padding_mask, sdpa_mask

import saccade.torch as saccade_torch
from saccade import rules
from saccade.errors import InvalidArgument, TraceError, Unsupported

__all__ = ["RuleTensor", "attention", "mask", "register"]

NAME = "saccade"


def register(name: str = NAME) -> None:
    """Registers the attention and its mask function under `name`, for attn_implementation=name. A name with "flash" in it
    would make transformers treat it as FlashAttention, and is refused."""
    if "flash" in name:
        raise InvalidArgument(f"transformers takes any name with 'flash' in it, such as {name!r}, for FlashAttention; choose another")
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=causal_mask_function, attention_mask=None, **kwargs):
    """transformers' mask function interface. Gives a RuleTensor with the mask over positions of this call."""
    if torch.compiler.is_compiling():
        return _built(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, kwargs)
    # A static cache counts on in the very tensor that it gives as the offset, before the kernel reads it.
    q_offset, kv_offset = (o.clone() if isinstance(o, torch.Tensor) else o for o in (q_offset, kv_offset))
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None and not _keeps_all(padding, kv_length, kv_offset):
        mask_function = and_masks(mask_function, padding_mask_function(padding))
    try:
        rule = rules.mask(functools.partial(_shifted, mask_function, q_offset, kv_offset))
        return RuleTensor.of(rule, (batch_size, 1, q_length, kv_length), kwargs.get("device", "cpu"))
    except TraceError as error:
        warnings.warn(f"saccade: a mask function of this model is no rule ({error}); the mask is built in memory", stacklevel=2)
        return _built(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, kwargs)


class RuleTensor(torch.Tensor):
    """A mask [batch, 1, q_length, kv_length] that is a rule and holds no elements, for code that hands masks on: its sizes,
    dtype and device can be read, it can be moved to a device and cut to fewer keys. All else raises."""

    @classmethod
    def of(cls, rule, shape, device):
        made = torch.empty(1, dtype=torch.bool, device=device).expand(shape).as_subclass(cls)
        made.rule = rule
        return made

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name == "__get__" and function.__self__.__name__ not in _READABLE:
            name = function.__self__.__name__
        if name in ("__get__", "size", "dim", "numel", "stride", "is_floating_point", "__len__"):
            return super().__torch_function__(function, types, args, kwargs or {})
        if name in ("contiguous", "detach", "clone"):
            return args[0]
        if name in ("to", "cuda", "cpu"):
            self = args[0]
            with torch._C.DisableTorchFunctionSubclass():
                moved = function(torch.empty(0, dtype=torch.bool, device=self.device), *args[1:], **(kwargs or {}))
            if moved.dtype == torch.bool:
                device = moved.device
                return cls.of(self.rule.to(device), tuple(self.shape), device)
        if name == "__getitem__":
            self, index = args
            with torch._C.DisableTorchFunctionSubclass():
                cut = torch.empty(1, device="meta").expand(self.shape)[index]
                if cut.dim() == 4 and cut.shape[:3] == self.shape[:3] and _is_prefix(index):
                    return cls.of(self.rule, tuple(cut.shape), self.device)
        if name in ("__repr__", "__str__"):
            return f"RuleTensor({args[0].rule!r})"
        raise Unsupported(f"'{name}' on an attention mask of Saccade, which is a rule and holds no elements; use "
                          "attn_implementation='sdpa' for models that compute with their masks")


_READABLE = ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "is_cpu", "is_meta", "is_sparse",
             "is_nested", "is_quantized", "is_leaf", "grad_fn", "itemsize", "nbytes")


def _is_prefix(index):
    last = index[-1] if isinstance(index, tuple) else index
    return last is Ellipsis or (isinstance(last, slice) and last.start in (None, 0) and last.step in (None, 1))


def _shifted(mask_function, q_offset, kv_offset, b, h, q_idx, kv_idx):
    return mask_function(b, h, q_idx + q_offset, kv_idx + kv_offset)


def _keeps_all(padding, kv_length, kv_offset):
    """Whether no key is padding. Reads the mask, as transformers' own implementation for PyTorch's attention does, but never
    while a CUDA graph is being captured."""
    if padding.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return False
    if isinstance(kv_offset, torch.Tensor):
        return False
    return bool(padding[:, kv_offset : kv_offset + kv_length].all())


def _built(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, kwargs):
    """The mask as a bool tensor [batch, 1, q_length, kv_length]."""
    kwargs = {**kwargs, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, **kwargs)


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, softcap=None, s_aux=None,
              position_bias=None, **kwargs):
    """transformers' attention interface: query [batch, heads, q_length, head_dim], key and value [batch, kv_heads, kv_length,
    head_dim], not repeated; attention_mask a RuleTensor, a 4-dimensional tensor or None. Returns ([batch, q_length, heads,
    head_dim], None)."""
    if dropout > 0:
        raise Unsupported(f"attention dropout is {dropout}; Saccade has none yet: call model.eval(), or set the config's to 0")
    if kwargs.get("output_attentions"):
        raise Unsupported("output_attentions=True wants weights that a fused kernel never holds; use attn_implementation='eager'")
    causal, mask_rule, bias = None, None, None
    if attention_mask is None:
        causal = module.is_causal if is_causal is None and hasattr(module, "is_causal") else is_causal is not False
        causal = "top_left" if causal and query.shape[2] > 1 else None
    elif isinstance(attention_mask, RuleTensor):
        mask_rule = attention_mask.rule
    elif attention_mask.dtype == torch.bool:
        mask_rule, _ = saccade_torch.rule_of_tensor(attention_mask[..., : key.shape[2]], _scores_shape(query, key))
    else:
        bias = attention_mask[..., : key.shape[2]]
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    score = _score_of(softcap, bias, _scores_shape(query, key))
    result = saccade_torch.attention(query, key, value, mask=mask_rule, score=score, causal=causal, scale=scaling,
                                     return_lse=s_aux is not None)
    if s_aux is not None:
        out, lse = result
        # A sink is one more score in the softmax whose value is dropped: out * exp(lse) / (exp(lse) + exp(sink)).
        share = torch.sigmoid(lse - s_aux.float().view(1, -1, 1))
        result = (out * share.unsqueeze(-1)).to(out.dtype)
    return result.transpose(1, 2).contiguous(), None


def _scores_shape(query, key):
    return query.shape[0], query.shape[1], query.shape[2], key.shape[2]


def _score_of(softcap, bias, shape):
    """The cap comes first, as in transformers' models: what is added is a mask."""
    if bias is None:
        return None if softcap is None else _capped(softcap)
    if softcap is None:
        return saccade_torch.rule_of_tensor(bias, shape)[1]
    text = "cap * tanh(score / cap) + {table}[b, h, q_idx, kv_idx]"
    return saccade_torch.table_rule(text, bias.expand(shape), cap=float(softcap))


def _capped(softcap):
    return saccade_torch.TensorRule("cap * tanh(score / cap)", '[[["cap", 0]], []]', (float(softcap),), ())
