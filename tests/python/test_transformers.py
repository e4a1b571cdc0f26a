"""saccade.transformers: small models of many kinds with random weights. Their logits are held against the same model in
float64, with dense attention written here, and may be twice as far from it as eager's."""

from __future__ import annotations

import copy
import functools
import inspect
import warnings

import numpy
import pytest
import torch

transformers = pytest.importorskip("transformers", minversion="5.0")

import saccade  # noqa: E402
import saccade.transformers as front  # noqa: E402
from transformers import masking_utils  # noqa: E402

# What newer versions call "cache".
CACHE = "cache" if "cache" in inspect.signature(transformers.LlamaForCausalLM.forward).parameters else "past_key_values"
VOCABULARY = 101
WINDOW = 8


def shape(**more):
    """Weights are ten times transformers' default: with its 0.02 every softmax is nearly flat, and hides a wrong mask."""
    return {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2, "pad_token_id": 0, "bos_token_id": 1,
            "eos_token_id": None, **more}


def llama(**more):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape(**more)))


def mistral(**more):
    return transformers.MistralForCausalLM(transformers.MistralConfig(**shape(sliding_window=WINDOW, **more)))


def gemma2():
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **shape(head_dim=16, sliding_window=WINDOW, attn_logit_softcapping=5.0, query_pre_attn_scalar=10,
                tie_word_embeddings=False)))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=256, n_embd=64, n_layer=2, n_head=4, initializer_range=0.2, bos_token_id=1,
        eos_token_id=None, pad_token_id=0))


def llama4():
    return transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(
        **shape(head_dim=16, intermediate_size_mlp=96, attention_chunk_size=WINDOW, num_local_experts=2, num_experts_per_tok=1,
                layer_types=["chunked_attention", "full_attention"], no_rope_layers=[1, 0])))


def gpt_oss():
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(
        **shape(head_dim=16, sliding_window=WINDOW, num_local_experts=2, num_experts_per_tok=1)))
    for layer in model.model.layers:
        layer.self_attn.sinks.data = torch.randn(4)
    model.set_experts_implementation("eager")  # the others have no float64
    return model


def modernbert():
    return transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
        local_attention=WINDOW, global_attn_every_n_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2, initializer_range=0.2))


def t5():
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, pad_token_id=0, decoder_start_token_id=0,
        eos_token_id=None))
    for name, weight in model.named_parameters():
        if "relative_attention_bias" in name:
            weight.data.normal_()
    return model


def vit():
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8,
        initializer_range=0.2))


DECODERS = {"llama": llama, "mistral": mistral, "gemma2": gemma2, "gpt2": gpt2, "llama4": llama4, "gpt_oss": gpt_oss}
MODELS = {**DECODERS, "modernbert": modernbert, "t5": t5, "vit": vit}


def dense_attention(module, query, key, value, attention_mask, scaling=None, softcap=None, s_aux=None, position_bias=None, **_):
    """The reference: scores, softmax and values as matrices, in the inputs' precision."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if position_bias is not None:
        scores = scores + position_bias
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, float("-inf"))
    if s_aux is not None:
        scores = torch.cat([scores, s_aux.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2).contiguous(), None


def dense_mask(*arguments, **keywords):
    return masking_utils.sdpa_mask(*arguments, **{**keywords, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})


@pytest.fixture(scope="module", autouse=True)
def registered():
    front.register()
    transformers.AttentionInterface.register("dense_reference", dense_attention)
    transformers.AttentionMaskInterface.register("dense_reference", dense_mask)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@functools.lru_cache(maxsize=None)
def model_of(name):
    torch.manual_seed(1)
    return MODELS[name]().eval()


@functools.lru_cache(maxsize=None)
def in_float64(name):
    model = copy.deepcopy(model_of(name)).double()
    model.set_attn_implementation("dense_reference")
    return model


def run(name, implementation, **call):
    model = model_of(name)
    model.set_attn_implementation(implementation)
    return model(**call).logits


def tokens(rows, length, seed=3):
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def padded(side, rows=3, length=30):
    """(input_ids, attention_mask): rows of length, length - 7, length - 14, ... and the rest padding."""
    ids, mask = tokens(rows, length), torch.ones(rows, length, dtype=torch.long)
    for row in range(rows if side else 0):
        empty = slice(length - 7 * row, length) if side == "right" else slice(0, 7 * row)
        ids[row, empty] = 0
        mask[row, empty] = 0
    return ids, mask


def check(got, eager, exact):
    """At most twice eager's error. One rounding of the largest logit is allowed to each, as eager may be right by luck."""
    assert not torch.isnan(got).any()
    rounding = torch.finfo(torch.float32).eps * float(exact.abs().max())
    allowed = 2 * max(float((eager.double() - exact).abs().max()), rounding)
    error = float((got.double() - exact).abs().max())
    assert error <= allowed, f"error {error:.3g} of the logits, allowed {allowed:.3g}"
    assert allowed < 1e-4 * float(exact.abs().max()), "eager itself is off"


def check_model(name, kept=None, **call):
    got, eager = run(name, "saccade", **call), run(name, "eager", **call)
    exact = in_float64(name)(**{key: v.double() if torch.is_floating_point(v) else v for key, v in call.items()}).logits
    kept = torch.ones(got.shape[:-1], dtype=torch.bool) if kept is None else kept
    check(got[kept], eager[kept], exact[kept])
    return got


class TestLogits:
    @pytest.mark.parametrize("side", [None, "left", "right"])
    @pytest.mark.parametrize("name", [*DECODERS, "modernbert"])
    def test_equal_eagers_with_padding(self, name, side):
        ids, mask = padded(side)
        check_model(name, mask.bool(), input_ids=ids, attention_mask=mask)

    @pytest.mark.parametrize("name", DECODERS)
    def test_equal_eagers_without_a_mask(self, name):
        check_model(name, input_ids=tokens(2, 30))
        check_model(name, input_ids=tokens(2, 1))

    @pytest.mark.parametrize("side", [None, "left", "right"])
    def test_of_an_encoder_and_decoder_with_position_bias(self, side):
        ids, mask = padded(side)
        check_model("t5", input_ids=ids, attention_mask=mask, decoder_input_ids=tokens(3, 11))
        decoder_ids, decoder_mask = padded(side, length=20)
        check_model("t5", decoder_mask.bool(), input_ids=ids, attention_mask=mask, decoder_input_ids=decoder_ids,
                    decoder_attention_mask=decoder_mask)

    def test_of_images_without_any_mask(self):
        check_model("vit", pixel_values=torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(5)))

    @pytest.mark.parametrize("name", ["mistral", "gemma2", "llama4", "gpt_oss", "modernbert"])
    def test_windows_softcaps_chunks_and_sinks_matter(self, name):
        """So that the comparisons above could fail: without them the logits are others."""
        ids = tokens(2, 30)
        before = run(name, "saccade", input_ids=ids)
        real = front.attention

        def without(module, query, key, value, attention_mask, **keywords):
            for key_word in ("softcap", "s_aux"):
                keywords.pop(key_word, None)
            return real(module, query, key, value, None, **keywords)

        transformers.AttentionInterface.register("without", without)
        transformers.AttentionMaskInterface.register("without", front.mask)
        assert (run(name, "without", input_ids=ids) - before).abs().max() > 0.01

    def test_padding_is_not_seen(self):
        """Other tokens in the padding change no bit of the rest."""
        for side in ("left", "right"):
            ids, mask = padded(side)
            other = torch.where(mask.bool(), ids, torch.full_like(ids, 77))
            for name in ("llama", "modernbert"):
                first, second = (run(name, "saccade", input_ids=i, attention_mask=mask) for i in (ids, other))
                assert torch.equal(first[mask.bool()], second[mask.bool()])

    def test_in_bfloat16(self):
        """Where float32 is exact enough to be the reference of the 2x rule."""
        ids, mask = padded("left")
        model = copy.deepcopy(model_of("gemma2")).bfloat16()
        results = {}
        for implementation in ("saccade", "eager"):
            model.set_attn_implementation(implementation)
            results[implementation] = model(input_ids=ids, attention_mask=mask).logits[mask.bool()].float()
        wide = copy.deepcopy(model).float()
        wide.set_attn_implementation("eager")
        exact = wide(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        errors = {key: float((value - exact).abs().max()) for key, value in results.items()}
        assert errors["saccade"] <= 2 * errors["eager"] < 0.2 * float(exact.abs().max())


def continued(model, ids, mask, lengths, cache):
    """Logits of all tokens, fed in pieces."""
    logits, start = [], 0
    for length in lengths:
        end = start + length
        logits.append(model(input_ids=ids[:, start:end], attention_mask=None if mask is None else mask[:, :end],
                            **{CACHE: cache}).logits)
        start = end
    return torch.cat(logits, 1)


class TestCaches:
    @pytest.mark.parametrize("kind", ["dynamic", "static"])
    @pytest.mark.parametrize("name, side", [*((name, "left") for name in DECODERS), ("llama", None), ("mistral", None), ("llama4", None)])
    def test_a_prompt_in_pieces_gives_the_same_logits(self, name, side, kind):
        """Among the pieces: one token, more than a window, and again one token. With and without an attention mask."""
        ids, mask = padded(side)
        model = model_of(name)
        model.set_attn_implementation("saccade")
        exact, eager = (m(input_ids=ids, attention_mask=mask).logits[mask.bool()] for m in (in_float64(name), eager_copy(name)))
        if kind == "dynamic":
            cache = transformers.DynamicCache(config=model.config)
        else:
            cache = transformers.StaticCache(config=model.config, max_cache_len=40)
        got = continued(model, ids, mask if side else None, (5, 1, 14, 1, 1, 8), cache)
        check(got[mask.bool()], eager, exact)

    @pytest.mark.parametrize("name", DECODERS)
    @pytest.mark.parametrize("kind", [None, "static"])
    def test_generation_gives_the_same_tokens(self, name, kind):
        ids, mask = padded("left", length=20)
        results = []
        for implementation in ("saccade", "eager"):
            model = model_of(name)
            model.set_attn_implementation(implementation)
            results.append(model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=16, do_sample=False,
                                          cache_implementation=kind, use_cache=True))
        assert results[0].shape == (3, 36) and len(results[0][:, 20:].unique()) > 4
        assert torch.equal(*results)

    @pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "t5"])
    def test_beams_give_the_same_tokens(self, name):
        ids, mask = padded("left", rows=2, length=20)
        results = []
        for implementation in ("saccade", "eager"):
            model = model_of(name)
            model.set_attn_implementation(implementation)
            results.append(model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=10, do_sample=False, num_beams=3))
        assert torch.equal(*results)

    @pytest.mark.parametrize("name", DECODERS)
    def test_growing_lengths_compile_nothing_per_step(self, name, compiles):
        model = model_of(name)
        model.set_attn_implementation("saccade")
        ids, mask = padded("left", rows=2, length=12)
        model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=3, do_sample=False)
        compiles()
        model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=40, do_sample=False)
        # One piece of a length may want another schedule; forty lengths may not.
        assert compiles() <= 2

    def test_no_mask_is_built_while_generating(self, monkeypatch):
        monkeypatch.setattr(front, "_built", lambda *a: pytest.fail("a mask was built in memory"))
        ids, mask = padded("left", length=20)
        for name in DECODERS:
            model = model_of(name)
            model.set_attn_implementation("saccade")
            model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=4, do_sample=False)


@functools.lru_cache(maxsize=None)
def eager_copy(name):
    model = copy.deepcopy(model_of(name))
    model.set_attn_implementation("eager")
    return model


class TestMasks:
    @pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
    def test_packed_sequences_do_not_see_each_other(self, name):
        lengths = (6, 13, 11)
        ids = tokens(1, sum(lengths))
        positions = torch.cat([torch.arange(length) for length in lengths]).unsqueeze(0)
        packed = run(name, "saccade", input_ids=ids, position_ids=positions, use_cache=False)
        exact, eager = (torch.cat([m(input_ids=part, use_cache=False).logits for part in ids.split(lengths, 1)], 1)
                        for m in (in_float64(name), eager_copy(name)))
        check(packed, eager, exact)
        other = ids.clone()
        other[:, : lengths[0]] = 77
        changed = run(name, "saccade", input_ids=other, position_ids=positions, use_cache=False)
        assert torch.equal(changed[:, lengths[0] :], packed[:, lengths[0] :])
        assert not torch.equal(changed[:, : lengths[0]], packed[:, : lengths[0]])

    @pytest.mark.parametrize("heads", [1, 4])
    def test_four_dimensional_masks_of_the_user(self, heads):
        ids = tokens(2, 20)
        kept = (torch.rand(2, heads, 20, 20, generator=torch.Generator().manual_seed(2)) > 0.5) | torch.eye(20, dtype=torch.bool)
        additive = torch.zeros(kept.shape).masked_fill(~kept, torch.finfo(torch.float32).min)
        exact = in_float64("llama")(input_ids=ids, attention_mask=kept).logits
        eager = run("llama", "eager", input_ids=ids, attention_mask=additive)
        for mask in (kept, additive, torch.zeros(kept.shape).masked_fill(~kept, float("-inf"))):
            check(run("llama", "saccade", input_ids=ids, attention_mask=mask), eager, exact)

    def test_an_additive_mask_that_is_no_mask(self):
        """Any numbers are added, not only 0 and the lowest."""
        ids = tokens(2, 20)
        added = torch.randn(2, 4, 20, 20, generator=torch.Generator().manual_seed(2))
        got = run("llama", "saccade", input_ids=ids, attention_mask=added)
        assert (got - run("llama", "eager", input_ids=ids, attention_mask=added)).abs().max() < 1e-4
        assert (got - run("llama", "saccade", input_ids=ids, attention_mask=added * 0)).abs().max() > 0.1

    def test_position_bias_and_an_additive_mask_are_added(self):
        module, q = torch.nn.Module(), torch.randn(1, 2, 4, 16)
        mask, bias = torch.randn(1, 1, 4, 4), torch.randn(1, 2, 4, 4)
        both, _ = front.attention(module, q, q, q, mask, position_bias=bias)
        summed, _ = front.attention(module, q, q, q, mask + bias)
        assert torch.equal(both, summed)

    def test_a_cap_comes_before_an_additive_mask(self):
        module, q = torch.nn.Module(), torch.randn(1, 2, 4, 16)
        mask = torch.full((1, 1, 4, 4), -40.0).triu(1)
        got, _ = front.attention(module, q, q, q, mask, softcap=2.0)
        scores = 2.0 * torch.tanh(q @ q.transpose(2, 3) / 4 / 2.0) + mask
        assert torch.allclose(got.transpose(1, 2), torch.softmax(scores, -1) @ q, atol=1e-5)

    @pytest.mark.parametrize("q_offset, kv_offset, q_length, kv_length", [
        (0, 0, 9, 9), (5, 0, 4, 9), (8, 0, 1, 9), (6, 3, 4, 7), (torch.tensor(5), 0, 4, 12)])
    @pytest.mark.parametrize("overlay", ["causal", "window", "chunks", "bidirectional window", "blocks", "packed", "or", "and"])
    def test_every_mask_function_as_a_rule(self, overlay, q_offset, kv_offset, q_length, kv_length):
        """The rule's mask, read out through the values, is what transformers' own function for SDPA builds."""
        ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]]).expand(2, -1)
        function = {
            "causal": masking_utils.causal_mask_function, "window": masking_utils.sliding_window_causal_mask_function(3),
            "chunks": masking_utils.chunked_causal_mask_function(4, torch.tensor([0, 2])),
            "bidirectional window": masking_utils.sliding_window_bidirectional_mask_function(2),
            "blocks": masking_utils.or_masks(masking_utils.causal_mask_function, masking_utils.blockwise_overlay(ids - 1)),
            "packed": masking_utils.and_masks(masking_utils.causal_mask_function, masking_utils.packed_sequence_mask_function(ids)),
            "or": masking_utils.or_masks(masking_utils.causal_mask_function, lambda b, h, q_idx, kv_idx: kv_idx < 4),
            "and": masking_utils.and_masks(masking_utils.causal_mask_function, lambda b, h, q_idx, kv_idx: (q_idx - kv_idx) % 2 == 0),
        }[overlay]
        padding = torch.ones(2, 17, dtype=torch.bool)
        padding[1, :2] = False
        for mask_2d in (None, padding[:, : kv_offset + kv_length]):
            arguments = (2, q_length, kv_length, q_offset, kv_offset, function, mask_2d)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                made = front.mask(*arguments, device=torch.device("cpu"))
            assert isinstance(made, front.RuleTensor) and made.shape == (2, 1, q_length, kv_length)
            expected = masking_utils.sdpa_mask(*arguments, allow_is_causal_skip=False)
            assert torch.equal(read_out(made), expected[:, 0])


def read_out(made):
    """bool [batch, q_length, kv_length] of a RuleTensor: with scores of 0 and the unit matrix as values a row of the output
    is 1 / n at each of the n keys that are kept. At most 16 keys: one head dim is one kernel for each rule."""
    batch, _, q_length, kv_length = made.shape
    v = torch.eye(kv_length, 16).expand(batch, 1, -1, -1)
    q, k = torch.zeros(batch, 1, q_length, 16), torch.zeros(batch, 1, kv_length, 16)
    return front.attention(torch.nn.Module(), q, k, v, made)[0][:, :, 0, :kv_length] > 0


def strange(b, h, q_idx, kv_idx):
    """No rule: it calls a function of PyTorch that knows tensors only. Keys at an even distance, and all before the query."""
    return torch.stack(torch.broadcast_tensors(q_idx, kv_idx)).sum(0) % 2 == 0


class TestFunctionsThatAreNoRules:
    def test_are_built_in_memory_and_right(self):
        arguments = (2, 5, 9, 4, 0, strange, torch.arange(9)[None, :] >= torch.tensor([[0], [2]]))
        with pytest.warns(UserWarning, match="no rule"):
            made = front.mask(*arguments)
        assert type(made) is torch.Tensor
        assert torch.equal(made, masking_utils.sdpa_mask(*arguments, allow_is_causal_skip=False))

    def test_warn_once(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for length in range(5, 10):
                front.mask(1, length, length, 0, 0, strange)
        assert len([w for w in caught if "no rule" in str(w.message)]) == 1

    @pytest.mark.parametrize("function", [strange, lambda b, h, q_idx, kv_idx: (q_idx + kv_idx) % 2 == 0])
    def test_in_a_model(self, function):
        """A model's mask, made by transformers with a function on top, handed to the model as a mask that is ready."""
        ids, mask = padded("left")
        logits = {}
        for name, model in (("saccade", model_of("llama")), ("eager", eager_copy("llama")), ("exact", in_float64("llama"))):
            if name == "saccade":
                model.set_attn_implementation("saccade")
            embedded = torch.zeros(*ids.shape, 64, dtype=model.dtype)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = masking_utils.create_causal_mask(model.config, embedded, attention_mask=mask, past_key_values=None,
                                                        and_mask_function=function)
            logits[name] = model(input_ids=ids, attention_mask=made).logits[mask.bool()]
        check(logits["saccade"], logits["eager"], logits["exact"])


class TestWhatIsRefused:
    @pytest.mark.parametrize("name", ["flash", "my_flash_attention", "saccade_flash"])
    def test_names_with_flash(self, name):
        with pytest.raises(saccade.InvalidArgument, match="flash"):
            front.register(name)
        assert name not in transformers.AttentionInterface._global_mapping

    def test_another_name_works(self):
        front.register("another")
        ids = tokens(1, 9)
        assert torch.equal(run("llama", "another", input_ids=ids), run("llama", "saccade", input_ids=ids))

    def test_output_attentions(self):
        with pytest.raises((saccade.Unsupported, ValueError), match="output_attentions.*eager"):
            run("llama", "saccade", input_ids=tokens(1, 9), output_attentions=True)

    def test_dropout_in_training(self):
        model = llama(attention_dropout=0.1, attn_implementation="saccade")
        with pytest.raises(saccade.Unsupported, match="dropout"):
            model.train()(input_ids=tokens(1, 9))
        assert not torch.isnan(model.eval()(input_ids=tokens(1, 9)).logits).any()

    def test_inputs_that_require_grad(self):
        model = model_of("llama")
        model.set_attn_implementation("saccade")
        with torch.enable_grad(), pytest.raises(saccade.Unsupported, match="grad"):
            model(input_ids=tokens(1, 9))

    @pytest.mark.parametrize("name", ["t5", "gpt_oss"])
    def test_a_bias_or_sinks_that_require_grad(self, name):
        """Nothing else requires grad, so only the table or the sinks can give it away."""
        model = copy.deepcopy(model_of(name))
        model.set_attn_implementation("saccade")
        for parameter_name, parameter in model.named_parameters():
            parameter.requires_grad_("relative_attention_bias" in parameter_name or "sinks" in parameter_name)
        more = {"decoder_input_ids": tokens(1, 5)} if name == "t5" else {}
        with torch.enable_grad(), pytest.raises(saccade.Unsupported, match="grad"):
            model(input_ids=tokens(1, 9), **more)


def rule_tensor(batch=2, q_length=5, kv_length=9):
    lengths = torch.tensor([9, 6])
    return front.mask(batch, q_length, kv_length, kv_length - q_length, 0, attention_mask=torch.arange(9)[None] < lengths[:, None])


class TestRuleTensor:
    def test_says_its_sizes_type_and_device(self):
        made = rule_tensor()
        assert isinstance(made, torch.Tensor) and isinstance(made, front.RuleTensor)
        assert made.shape == (2, 1, 5, 9) and made.size(-1) == 9 and made.size() == made.shape and len(made) == 2
        assert made.dim() == made.ndim == 4 and made.numel() == 90
        assert made.dtype == torch.bool and made.device == torch.device("cpu") and not made.is_floating_point()
        assert not made.requires_grad and not made.is_cuda and "RuleTensor" in repr(made)

    @pytest.mark.parametrize("moved", [
        lambda m: m.to("cpu"), lambda m: m.to(torch.device("cpu")), lambda m: m.cpu(), lambda m: m.contiguous(),
        lambda m: m.detach(), lambda m: m.clone(), lambda m: m.to("cpu", non_blocking=True), lambda m: m.to(torch.bool),
        lambda m: m.to(device="cpu", dtype=torch.bool)])
    def test_can_be_moved(self, moved):
        made = moved(rule_tensor())
        assert isinstance(made, front.RuleTensor) and torch.equal(read_out(made), read_out(rule_tensor()))

    @pytest.mark.parametrize("index", [
        numpy.s_[:, :, :, :6], numpy.s_[..., :6], numpy.s_[..., :-3], numpy.s_[:, :, :, 0:6], numpy.s_[..., :99], ...,
        numpy.s_[:], numpy.s_[:, :], numpy.s_[:, :, :, :], numpy.s_[0:2, ..., 0:6:1]], ids=str)
    def test_can_be_cut_to_fewer_keys(self, index):
        cut, whole = rule_tensor()[index], read_out(rule_tensor()).unsqueeze(1)
        assert isinstance(cut, front.RuleTensor) and cut.shape == whole[index].shape
        assert torch.equal(read_out(cut), whole[index][:, 0])

    @pytest.mark.parametrize("index", [
        0, numpy.s_[:, 0], numpy.s_[..., 3:], numpy.s_[1:,], numpy.s_[:, :, -1:], numpy.s_[..., ::2], numpy.s_[..., None],
        numpy.s_[None, ...], numpy.s_[..., 0], numpy.s_[:, :, 2:4, :], torch.tensor([1, 0])], ids=str)
    def test_every_other_index_raises(self, index):
        with pytest.raises(saccade.Unsupported, match="rule"):
            rule_tensor()[index]

    @pytest.mark.parametrize("operation", [
        lambda m: m + 1, lambda m: 1.0 - m, lambda m: ~m, lambda m: m & m, lambda m: m | m, lambda m: m == 0, lambda m: bool(m),
        lambda m: m.all(), lambda m: m.any(), lambda m: m.sum(), lambda m: m.float(), lambda m: m.to(torch.float32),
        lambda m: m.item(), lambda m: m.tolist(), lambda m: m.numpy(), lambda m: torch.where(m, 0.0, 1.0),
        lambda m: m.masked_fill(m, 0), lambda m: torch.zeros(2, 1, 5, 9).masked_fill(m, 1.0), lambda m: torch.cat([m, m]),
        lambda m: m.expand(2, 4, 5, 9), lambda m: m.repeat(1, 4, 1, 1), lambda m: m.view(2, 5, 9), lambda m: m.reshape(-1),
        lambda m: m.squeeze(1), lambda m: m.unsqueeze(0), lambda m: m.transpose(2, 3), lambda m: m.T, lambda m: m.mT,
        lambda m: m.data + 1, lambda m: m.fill_(True), lambda m: m.__setitem__(0, True), lambda m: torch.zeros(2, 1, 5, 9)[m],
        lambda m: list(m), lambda m: m.repeat_interleave(2, 0), lambda m: m.index_select(0, torch.tensor([0])),
        lambda m: torch.logical_not(m), lambda m: m.__dlpack__(),
        lambda m: torch.nn.functional.scaled_dot_product_attention(
            torch.zeros(2, 1, 5, 16), torch.zeros(2, 1, 9, 16), torch.zeros(2, 1, 9, 16), m)])
    def test_everything_else_raises(self, operation):
        with pytest.raises(saccade.Unsupported, match="rule"):
            operation(rule_tensor())

    def test_can_be_copied_and_pickled_or_says_why_not(self):
        made = rule_tensor()
        try:
            again = copy.deepcopy(made)
        except saccade.Unsupported as error:
            assert "rule" in str(error)
        else:
            assert torch.equal(read_out(again), read_out(made))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_gives_the_same_logits(backend):
    """As one graph, as with PyTorch's own attention."""
    torch._dynamo.reset()
    model = copy.deepcopy(model_of("llama"))
    model.set_attn_implementation("saccade")
    ids, mask = padded("left")
    call = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    exact, eager = (m(**call).logits[mask.bool()] for m in (in_float64("llama"), eager_copy("llama")))
    got = torch.compile(model, backend=backend, fullgraph=True)(**call).logits
    check(got[mask.bool()], eager, exact)


def test_a_compiled_model_with_softcap_and_window_gives_the_same_logits():
    torch._dynamo.reset()
    model = copy.deepcopy(model_of("gemma2"))
    model.set_attn_implementation("saccade")
    ids = tokens(2, 30)
    exact, eager = (m(input_ids=ids, use_cache=False).logits for m in (in_float64("gemma2"), eager_copy("gemma2")))
    check(torch.compile(model, backend="eager")(input_ids=ids, use_cache=False).logits, eager, exact)


def test_lengths_of_a_compiled_model_are_at_most_two_graphs():
    """As many as with eager attention and with PyTorch's."""
    torch._dynamo.reset()
    graphs = []
    model = copy.deepcopy(model_of("llama"))
    model.set_attn_implementation("saccade")
    compiled = torch.compile(model, backend=lambda graph, example_inputs: graphs.append(graph) or graph.forward)
    ids, mask = padded("left")
    for length in range(20, 26):
        got = compiled(input_ids=ids[:, :length], attention_mask=mask[:, :length], use_cache=False).logits
        plain = model(input_ids=ids[:, :length], attention_mask=mask[:, :length], use_cache=False).logits
        kept = mask[:, :length].bool()
        assert (got - plain)[kept].abs().max() < 1e-4
    assert len(graphs) <= 2
