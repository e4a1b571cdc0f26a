"""Models of real shapes (transformers' configurations, random weights, fewer layers) with attn_implementation="saccade" beside PyTorch's
own attention: logits against a float32 forward pass, and tokens a second.

  python3 bench/models.py [--device cuda] [--layers 8] [--new-tokens 256] [--models llama,mistral,gemma2,gpt2] --output FILE.json

A batch with left padding is prefilled and continued greedily with Saccade. The whole sequence then goes through the model once more in
float32 (float64 for a float32 model) and once in the model's dtype, both with PyTorch's math back end. Saccade's logits may be at most twice as far from float32 as the
math back end's (mean absolute difference over the positions that are no padding, prefill and generated tokens apart).
"""
import argparse
import copy
import pathlib
import sys
import time

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

import saccade
import saccade.transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import capi  # noqa: E402  results files

VOCABULARY = 4096  # the attention does not see it, and a float32 copy of the logits should fit


def configurations(layers):
    """Shapes of Llama-3-8B, Mistral-7B, Gemma-2-9B and GPT-2 XL."""
    return {
        "llama": transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=4096, intermediate_size=14336, num_hidden_layers=layers,
                                          num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=8192),
        "mistral": transformers.MistralConfig(vocab_size=VOCABULARY, hidden_size=4096, intermediate_size=14336,
                                              num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=8,
                                              head_dim=128, sliding_window=512, max_position_embeddings=8192),
        "gemma2": transformers.Gemma2Config(vocab_size=VOCABULARY, hidden_size=3584, intermediate_size=14336,
                                            num_hidden_layers=layers, num_attention_heads=16, num_key_value_heads=8, head_dim=256,
                                            sliding_window=512, attn_logit_softcapping=50.0, query_pre_attn_scalar=256),
        "gpt2": transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=1600, n_layer=layers, n_head=25, n_positions=2048,
                                        bos_token_id=1, eos_token_id=1),
    }


def small(configuration):
    """The same kind of model for a machine without a GPU."""
    for name, value in {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
                        "head_dim": 32, "sliding_window": 24, "query_pre_attn_scalar": 32, "n_embd": 128, "n_head": 4}.items():
        if getattr(configuration, name, None) is not None:
            setattr(configuration, name, value)
    return configuration


def built(configuration, implementation, dtype, device):
    torch.manual_seed(0)
    with device:
        return transformers.AutoModelForCausalLM.from_config(copy.deepcopy(configuration), attn_implementation=implementation,
                                                             dtype=dtype).eval()


def padded_batch(batch, length, device):
    """Token ids and mask with a third of the first sequence as padding on the left."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, VOCABULARY, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, : length // 3] = 0
    return ids.to(device), mask.to(device)


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@torch.no_grad()
def generated(model, ids, mask, new_tokens):
    """(sequences, logits of each step [batch, new_tokens, vocabulary], seconds)."""
    def run(count):
        return model.generate(ids, attention_mask=mask, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0,
                              eos_token_id=None, output_logits=True, return_dict_in_generate=True)

    run(2)  # compiles what is to be compiled
    synchronise(ids.device)
    start = time.perf_counter()
    result = run(new_tokens)
    synchronise(ids.device)
    return result.sequences, torch.stack(result.logits, 1), time.perf_counter() - start


def positions_of(mask):
    """As generate() numbers them: padding does not count."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


@torch.no_grad()
def forward_logits(model, sequences, mask):
    with sdpa_kernel(SDPBackend.MATH):
        return model(sequences, attention_mask=mask, position_ids=positions_of(mask)).logits


@torch.no_grad()
def prefill(model, ids, mask, repetitions=5):
    """(logits, median seconds)."""
    logits = model(ids, attention_mask=mask, position_ids=positions_of(mask)).logits
    times = []
    for _ in range(repetitions):
        synchronise(ids.device)
        start = time.perf_counter()
        model(ids, attention_mask=mask, position_ids=positions_of(mask))
        synchronise(ids.device)
        times.append(time.perf_counter() - start)
    return logits, sorted(times)[len(times) // 2]


def mean_error(logits, reference, keep):
    return (logits.to(reference.dtype) - reference).abs().mean(-1)[keep].mean().item()


def measured(name, configuration, arguments, device, dtype):
    ids, mask = padded_batch(arguments.batch, arguments.length, device)
    ours = built(configuration, "saccade", dtype, device)
    compiled = saccade.statistics()["compiled"]
    our_prefill, our_prefill_s = prefill(ours, ids, mask)
    sequences, our_steps, our_s = generated(ours, ids, mask, arguments.new_tokens)
    compiled = saccade.statistics()["compiled"] - compiled
    del ours
    theirs = built(configuration, "sdpa" if name != "gemma2" else "eager", dtype, device)  # transformers' sdpa has no softcap
    _, their_prefill_s = prefill(theirs, ids, mask)
    _, _, their_s = generated(theirs, ids, mask, arguments.new_tokens)
    whole = torch.cat([mask, mask.new_ones(mask.shape[0], arguments.new_tokens)], 1)
    plain = forward_logits(theirs, sequences, whole)
    exact = forward_logits(theirs.double() if dtype == torch.float32 else theirs.float(), sequences, whole)
    del theirs
    length = ids.shape[1]
    row = {"model": name, "layers": arguments.layers, "batch": arguments.batch, "length": arguments.length,
           "new_tokens": arguments.new_tokens, "dtype": str(dtype), "kernels_compiled": compiled,
           "other": "sdpa" if name != "gemma2" else "eager (transformers' sdpa has no softcap)"}
    for part, logits, positions in (("prefill", our_prefill, slice(0, length)), ("generated", our_steps, slice(length - 1, -1))):
        keep = whole[:, positions].bool()
        error, bound = mean_error(logits, exact[:, positions], keep), 2 * mean_error(plain[:, positions], exact[:, positions], keep)
        row[part] = {"error": error, "bound": bound, "inside": error <= bound}
    tokens = arguments.batch * arguments.new_tokens
    row["tokens_per_s"], row["other_tokens_per_s"] = tokens / our_s, tokens / their_s
    row["prefill_ms"], row["other_prefill_ms"] = our_prefill_s * 1e3, their_prefill_s * 1e3
    print(f"{name:8} prefill {row['prefill']['error']:.2e} of {row['prefill']['bound']:.2e}, generated "
          f"{row['generated']['error']:.2e} of {row['generated']['bound']:.2e}; {row['tokens_per_s']:.0f} tokens/s beside "
          f"{row['other_tokens_per_s']:.0f}; prefill {row['prefill_ms']:.2f} ms beside {row['other_prefill_ms']:.2f}; "
          f"{compiled} kernels compiled", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--models", default="llama,mistral,gemma2,gpt2")
    parser.add_argument("--small", action="store_true", help="small models, for a machine without a GPU")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    saccade.transformers.register()
    device = torch.device(arguments.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    rows = []
    for name, configuration in configurations(arguments.layers).items():
        if name in arguments.models.split(","):
            rows.append(measured(name, small(configuration) if arguments.small else configuration, arguments, device, dtype))
    if arguments.output:
        machine = torch.cuda.get_device_name(device) if device.type == "cuda" else capi.cpu_name()
        versions = {"torch": torch.__version__, "transformers": transformers.__version__, "saccade": saccade.__version__}
        capi.write_results(arguments.output, machine, rows, versions=versions)
    return 0 if all(row[part]["inside"] for row in rows for part in ("prefill", "generated")) else 1


if __name__ == "__main__":
    sys.exit(main())
