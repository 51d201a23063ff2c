#!/usr/bin/env python3
"""Writes <name>.gguf and <name>.logits.bin for each architecture: a tiny random model of Hugging
Face transformers, converted by hand, and the logits that transformers computes from it.

    python3 make_arch_goldens.py            (from anywhere; writes beside this file)

Needs torch, transformers (5.x, with qwen3_5_moe), gguf and numpy from PyPI; the tests need none of
it. Norms, q/k norms and dt_bias are drawn at random, since transformers starts them at values that
hide a norm forgotten, doubled or misplaced. Weights are rounded to what float16 can hold and stored
as F16 (routers F32 or BF16), so that both programs compute with the same numbers.

  <name>.gguf         the model
  <name>.logits.bin   float32 little endian [len(IDS), vocab]: after reading ids[0..i]
  ids.json            the token ids, below 97
"""
import json
import pathlib
import random

import gguf
import numpy as np
import torch
import transformers
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)
from transformers.models.qwen3_5_moe import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

HERE = pathlib.Path(__file__).resolve().parent
VOCAB, LENGTH = 97, 80
BOTH = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, attention_bias=False)
MOE = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32)
F16, F32, BF16 = gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.BF16


def randomise(model, seed):
    """Every parameter anew, rounded to float16."""
    g = torch.Generator().manual_seed(seed)
    zero_centred = "Qwen3_5" in type(model).__name__

    def uniform(p, low, high):
        return torch.rand(p.shape, generator=g) * (high - low) + low

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("linear_attn.norm.weight"):
                value = uniform(p, 0.5, 1.5)
            elif name.endswith(("norm.weight", "layernorm.weight")):
                value = uniform(p, -0.5, 0.5) if zero_centred else uniform(p, 0.5, 1.5)
            elif name.endswith("A_log"):
                value = uniform(p, -3, 1.4)
            elif name.endswith("dt_bias"):
                value = uniform(p, -3, 1)
            elif name.endswith("conv1d.weight"):
                value = uniform(p, -0.6, 0.9)
            elif name.endswith("mlp.gate.weight"):  # the router
                value = uniform(p, -0.6, 0.6).bfloat16().float()
            else:
                spread = (3 / p.shape[-1]) ** 0.5
                value = uniform(p, -spread, spread)
            p.copy_(value.half().float())


def interleave(w, heads):
    """What a converter does to Llama's query and key rows: halves of a head become neighbours."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def tile(a, dim, n_k, ratio, width):
    """Hugging Face groups V heads by K head; a GGUF file tiles them over the K heads."""
    order = [g * ratio + r for r in range(ratio) for g in range(n_k)]
    return np.take(a, np.concatenate([np.arange(h * width, (h + 1) * width) for h in order]), axis=dim)


class Writer:
    def __init__(self, name, architecture, config):
        self.out = gguf.GGUFWriter(HERE / f"{name}.gguf", architecture)
        self.prefix, self.c = architecture, config
        self.numbers(block_count=config.num_hidden_layers, context_length=config.max_position_embeddings,
                     embedding_length=config.hidden_size)
        self.number("attention.head_count", config.num_attention_heads)
        self.number("attention.head_count_kv", config.num_key_value_heads)
        self.out.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
        self.out.add_float32(f"{architecture}.rope.freq_base", config.rope_parameters["rope_theta"])

    def number(self, key, value):
        self.out.add_uint32(f"{self.prefix}.{key}", value)

    def numbers(self, **values):
        for key, value in values.items():
            self.number(key, value)

    def tensor(self, name, value, kind=F16):
        value = np.ascontiguousarray(value, dtype=np.float32)
        if kind == BF16:
            self.out.add_tensor(name, gguf.quants.quantize(value, BF16), raw_dtype=BF16)
        else:
            self.out.add_tensor(name, value.astype(np.float16) if kind == F16 else value)

    def head_dim(self):
        self.number("attention.key_length", self.c.head_dim)
        self.number("attention.value_length", self.c.head_dim)

    def dense(self, b, m, sd, suffix=""):
        for n in ("gate", "up", "down"):
            self.tensor(f"{b}ffn_{n}{suffix}.weight", sd[f"{m}{n}_proj.weight"])

    def experts(self, b, m, sd, router, fused):
        self.tensor(b + "ffn_gate_inp.weight", sd[m + "gate.weight"], router)
        both, half = sd[m + "experts.gate_up_proj"], sd[m + "experts.gate_up_proj"].shape[1] // 2
        if fused:
            self.tensor(b + "ffn_gate_up_exps.weight", both)
        else:
            self.tensor(b + "ffn_gate_exps.weight", both[:, :half])
            self.tensor(b + "ffn_up_exps.weight", both[:, half:])
        self.tensor(b + "ffn_down_exps.weight", sd[m + "experts.down_proj"])

    def mixture(self):
        self.numbers(expert_count=self.c.num_experts, expert_used_count=self.c.num_experts_per_tok,
                     expert_feed_forward_length=self.c.moe_intermediate_size)

    def finish(self, sd, norm_offset=0.0):
        self.tensor("token_embd.weight", sd["model.embed_tokens.weight"])
        self.tensor("output_norm.weight", sd["model.norm.weight"] + norm_offset, F32)
        if not self.c.tie_word_embeddings:
            self.tensor("output.weight", sd["lm_head.weight"])
        self.out.write_header_to_file()
        self.out.write_kv_data_to_file()
        self.out.write_tensors_to_file()
        self.out.close()


def write_plain(name, architecture, config, sd, fused=False):
    w, llama = Writer(name, architecture, config), architecture == "llama"
    if not llama:
        w.head_dim()
    if architecture == "qwen3moe":
        w.mixture()
    else:
        w.number("feed_forward_length", config.intermediate_size)
    for i in range(config.num_hidden_layers):
        b, m = f"blk.{i}.", f"model.layers.{i}."
        w.tensor(b + "attn_norm.weight", sd[m + "input_layernorm.weight"], F32)
        w.tensor(b + "ffn_norm.weight", sd[m + "post_attention_layernorm.weight"], F32)
        for n, hf, heads in (("q", "q", config.num_attention_heads), ("k", "k", config.num_key_value_heads),
                             ("v", "v", 0), ("output", "o", 0)):
            value = sd[f"{m}self_attn.{hf}_proj.weight"]
            w.tensor(f"{b}attn_{n}.weight", interleave(value, heads) if llama and heads else value)
        if not llama:
            for n in ("q", "k"):
                w.tensor(f"{b}attn_{n}_norm.weight", sd[f"{m}self_attn.{n}_norm.weight"], F32)
        if architecture == "qwen3moe":
            w.experts(b, m + "mlp.", sd, F32, fused)
        else:
            w.dense(b, m + "mlp.", sd)
    if llama and config.rope_parameters["rope_type"] == "llama3":
        w.tensor("rope_freqs.weight", llama3_divisors(config), F32)
    w.finish(sd)


def llama3_divisors(config):
    """Written down from the description of Llama 3.1: wavelengths longer than the old context are
    divided by `factor`, short ones are left, those between are blended."""
    r, d = config.rope_parameters, config.head_dim
    out = []
    for i in range(d // 2):
        wavelength = 2 * np.pi * r["rope_theta"] ** (2 * i / d)
        old = r["original_max_position_embeddings"]
        smooth = (old / wavelength - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
        smooth = min(1, max(0, smooth))
        out.append(1 / ((1 - smooth) / r["factor"] + smooth))
    return np.array(out)


def write_hybrid(name, config, sd):
    w = Writer(name, "qwen35moe", config)
    w.head_dim()
    w.mixture()
    n_k, n_v, d = config.linear_num_key_heads, config.linear_num_value_heads, config.linear_key_head_dim
    ratio, kd = n_v // n_k, n_k * d
    w.numbers(expert_shared_feed_forward_length=config.shared_expert_intermediate_size, full_attention_interval=4)
    w.number("rope.dimension_count", int(config.head_dim * config.rope_parameters["partial_rotary_factor"]))
    for key, value in (("conv_kernel", 4), ("state_size", d), ("group_count", n_k), ("time_step_rank", n_v),
                       ("inner_size", n_v * d)):
        w.number("ssm." + key, value)
    for i in range(config.num_hidden_layers):
        b, m = f"blk.{i}.", f"model.layers.{i}."
        w.tensor(b + "attn_norm.weight", sd[m + "input_layernorm.weight"] + 1, F32)
        w.tensor(b + "post_attention_norm.weight", sd[m + "post_attention_layernorm.weight"] + 1, F32)
        if config.layer_types[i] == "full_attention":
            for n, hf in (("q", "q"), ("k", "k"), ("v", "v"), ("output", "o")):
                w.tensor(f"{b}attn_{n}.weight", sd[f"{m}self_attn.{hf}_proj.weight"])
            for n in ("q", "k"):
                w.tensor(f"{b}attn_{n}_norm.weight", sd[f"{m}self_attn.{n}_norm.weight"] + 1, F32)
        else:
            m2 = m + "linear_attn."

            def values_tiled(a):
                return np.concatenate([a[:2 * kd], tile(a[2 * kd:], 0, n_k, ratio, d)])

            w.tensor(b + "attn_qkv.weight", values_tiled(sd[m2 + "in_proj_qkv.weight"]))
            w.tensor(b + "attn_gate.weight", tile(sd[m2 + "in_proj_z.weight"], 0, n_k, ratio, d))
            w.tensor(b + "ssm_beta.weight", tile(sd[m2 + "in_proj_b.weight"], 0, n_k, ratio, 1))
            w.tensor(b + "ssm_alpha.weight", tile(sd[m2 + "in_proj_a.weight"], 0, n_k, ratio, 1))
            w.tensor(b + "ssm_out.weight", tile(sd[m2 + "out_proj.weight"], 1, n_k, ratio, d))
            w.tensor(b + "ssm_conv1d.weight", values_tiled(sd[m2 + "conv1d.weight"][:, 0]), F32)
            w.tensor(b + "ssm_dt.bias", tile(sd[m2 + "dt_bias"], 0, n_k, ratio, 1), F32)
            w.tensor(b + "ssm_a", tile(-np.exp(sd[m2 + "A_log"]), 0, n_k, ratio, 1), F32)
            w.tensor(b + "ssm_norm.weight", sd[m2 + "norm.weight"], F32)
        w.experts(b, m + "mlp.", sd, BF16, False)
        w.tensor(b + "ffn_gate_inp_shexp.weight", sd[m + "mlp.shared_expert_gate.weight"][0], F32)
        w.dense(b, m + "mlp.shared_expert.", sd, "_shexp")
    w.finish(sd, 1.0)


def make(name, model_class, config, seed, write):
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = model_class(config).float().eval()
    randomise(model, seed)
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0].float().numpy()
    (HERE / f"{name}.logits.bin").write_bytes(np.ascontiguousarray(logits, dtype="<f4").tobytes())
    write({k: v.numpy() for k, v in model.state_dict().items()})
    print(name, sum(p.numel() for p in model.parameters()), float(np.abs(logits).max()),
          (HERE / f"{name}.gguf").stat().st_size)


def main():
    print("transformers", transformers.__version__, "torch", torch.__version__)
    (HERE / "ids.json").write_text(json.dumps({"ids": IDS, "vocab": VOCAB}) + "\n")
    rope = {"rope_type": "default", "rope_theta": 1e4}
    qwen3 = Qwen3Config(**BOTH, head_dim=32, tie_word_embeddings=True, rope_parameters=rope)
    make("qwen3", Qwen3ForCausalLM, qwen3, 1, lambda sd: write_plain("qwen3", "qwen3", qwen3, sd))
    moe = Qwen3MoeConfig(**BOTH, **MOE, head_dim=32, norm_topk_prob=True, tie_word_embeddings=False,
                         rope_parameters=rope)
    make("qwen3moe", Qwen3MoeForCausalLM, moe, 2, lambda sd: write_plain("qwen3moe", "qwen3moe", moe, sd))
    make("qwen3moe-fused", Qwen3MoeForCausalLM, moe, 2,
         lambda sd: write_plain("qwen3moe-fused", "qwen3moe", moe, sd, fused=True))
    smollm = LlamaConfig(**BOTH, tie_word_embeddings=True, rope_parameters=rope)
    make("llama", LlamaForCausalLM, smollm, 3, lambda sd: write_plain("llama", "llama", smollm, sd))
    llama3 = LlamaConfig(**BOTH, tie_word_embeddings=False, rope_parameters={
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64})
    make("llama3", LlamaForCausalLM, llama3, 4, lambda sd: write_plain("llama3", "llama", llama3, sd))
    hybrid = Qwen3_5MoeTextConfig(
        **{**BOTH, "num_hidden_layers": 4, "rms_norm_eps": 1e-6}, **MOE, head_dim=32,
        shared_expert_intermediate_size=48, linear_conv_kernel_dim=4, linear_key_head_dim=16,
        linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, tie_word_embeddings=False,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25,
                         "mrope_section": [2, 1, 1], "mrope_interleaved": True})
    make("qwen35moe", Qwen3_5MoeForCausalLM, hybrid, 5, lambda sd: write_hybrid("qwen35moe", hybrid, sd))


_random = random.Random(7)
IDS = [_random.randrange(VOCAB) for _ in range(LENGTH)]

if __name__ == "__main__":
    main()
