#!/usr/bin/env python3
"""Writes a GGUF of a known shape with random but sane quantised weights, for speeds and errors.

    synth_gguf.py OUT.gguf 0.8b|4b|27b|moe [--mtp] [--seed N]

0.8b, 4b and 27b are dense qwen35 models in the mix of types of the published K-quants; moe is a tiny
qwen35moe in Q8_0 with its experts' gates and ups in Q4_0. No vocabulary: `ponder-engine bench` and
`logits` take token ids. The same seed gives the same file. Needs numpy.
"""
import argparse
import dataclasses
import struct

import numpy as np

F32, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K = 0, 2, 8, 12, 13, 14
BLOCK = {F32: (1, 4), Q4_0: (32, 18), Q8_0: (32, 34), Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210)}
U32, I32, FLOAT, STRING, ARRAY = 4, 5, 6, 8, 9


@dataclasses.dataclass
class Shape:
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    v_heads: int
    vocab: int = 248320
    tied: bool = True
    head_dim: int = 256
    rot: int = 64
    sections: tuple = (11, 11, 10, 0)
    k_heads: int = 16
    state: int = 128
    experts: int = 0
    used: int = 0


SHAPES = {
    "27b": Shape(64, 5120, 17408, 24, 4, 48, tied=False),
    "4b": Shape(32, 2560, 9216, 16, 4, 32),
    "0.8b": Shape(24, 1024, 3584, 8, 2, 16),
    "moe": Shape(8, 128, 64, 4, 1, 4, vocab=512, head_dim=64, rot=16, sections=(3, 3, 2, 0), k_heads=2, state=32, experts=8, used=2),
}


def blocks(rng, kind, sigma, n):
    """n random blocks whose weights have the standard deviation sigma."""
    def half(x):
        return np.full((n, 1), x, np.float16).view(np.uint8)
    if kind == Q8_0:
        b = np.zeros((n, 34), np.uint8)
        b[:, :2] = half(sigma / 73.6)
        b[:, 2:] = rng.integers(-127, 128, (n, 32), dtype=np.int8).view(np.uint8)
    elif kind == Q4_0:
        b = rng.integers(0, 256, (n, 18), dtype=np.uint8)
        b[:, :2] = half(sigma / 4.61)
    elif kind in (Q4_K, Q5_K):
        b = rng.integers(0, 256, (n, BLOCK[kind][1]), dtype=np.uint8)
        d = sigma / (8 * (4.61 if kind == Q4_K else 9.23))
        b[:, 0:2] = half(d)
        b[:, 2:4] = half(d * (7.5 if kind == Q4_K else 15.5))
        scales = rng.integers(5, 12, (n, 8), dtype=np.uint8)
        b[:, 4:8] = b[:, 8:12] = scales[:, 0:4]
        b[:, 12:16] = (scales[:, 4:8] & 15) | ((scales[:, 4:8] & 15) << 4)
    else:
        b = rng.integers(0, 256, (n, 210), dtype=np.uint8)
        b[:, 192:208] = rng.integers(12, 21, (n, 16), dtype=np.int8).view(np.uint8)
        b[:, 208:210] = half(sigma / (16 * 18.5))
    return b.tobytes()


def tensors(s, mtp):
    """(name, type, extents) of every tensor, in the order of the file."""
    key, value = s.k_heads * s.state, s.v_heads * s.state
    q4, q5, q6 = (Q8_0, Q8_0, Q8_0) if s.experts else (Q4_K, Q5_K, Q6_K)
    yield "token_embd.weight", q6 if s.tied else q4, (s.hidden, s.vocab)
    yield "output_norm.weight", F32, (s.hidden,)
    if not s.tied:
        yield "output.weight", q6, (s.hidden, s.vocab)
    for i in range(s.layers + mtp):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", F32, (s.hidden,)
        yield p + "post_attention_norm.weight", F32, (s.hidden,)
        if i == s.layers or (i + 1) % 4 == 0:
            yield p + "attn_q.weight", q4, (s.hidden, 2 * s.heads * s.head_dim)
            yield p + "attn_k.weight", q4, (s.hidden, s.kv_heads * s.head_dim)
            yield p + "attn_v.weight", q6, (s.hidden, s.kv_heads * s.head_dim)
            yield p + "attn_output.weight", q5, (s.heads * s.head_dim, s.hidden)
            yield p + "attn_q_norm.weight", F32, (s.head_dim,)
            yield p + "attn_k_norm.weight", F32, (s.head_dim,)
        else:
            yield p + "attn_qkv.weight", q5, (s.hidden, 2 * key + value)
            yield p + "attn_gate.weight", q4, (s.hidden, value)
            yield p + "ssm_alpha.weight", Q8_0, (s.hidden, s.v_heads)
            yield p + "ssm_beta.weight", Q8_0, (s.hidden, s.v_heads)
            yield p + "ssm_conv1d.weight", F32, (4, 2 * key + value)
            yield p + "ssm_dt.bias", F32, (s.v_heads,)
            yield p + "ssm_a", F32, (s.v_heads,)
            yield p + "ssm_norm.weight", F32, (s.state,)
            yield p + "ssm_out.weight", q5, (value, s.hidden)
        if s.experts:
            yield p + "ffn_gate_inp.weight", F32, (s.hidden, s.experts)
            yield p + "ffn_gate_exps.weight", Q4_0, (s.hidden, s.ffn, s.experts)
            yield p + "ffn_up_exps.weight", Q4_0, (s.hidden, s.ffn, s.experts)
            yield p + "ffn_down_exps.weight", Q8_0, (s.ffn, s.hidden, s.experts)
            yield p + "ffn_gate_inp_shexp.weight", F32, (s.hidden,)
            yield p + "ffn_gate_shexp.weight", Q8_0, (s.hidden, s.ffn)
            yield p + "ffn_up_shexp.weight", Q8_0, (s.hidden, s.ffn)
            yield p + "ffn_down_shexp.weight", Q8_0, (s.ffn, s.hidden)
        else:
            yield p + "ffn_gate.weight", q4, (s.hidden, s.ffn)
            yield p + "ffn_up.weight", q4, (s.hidden, s.ffn)
            yield p + "ffn_down.weight", q6 if i % 2 else q4, (s.ffn, s.hidden)
        if i == s.layers:
            yield p + "nextn.eh_proj.weight", Q8_0, (2 * s.hidden, s.hidden)
            for norm in ("enorm", "hnorm", "shared_head_norm"):
                yield p + f"nextn.{norm}.weight", F32, (s.hidden,)


def metadata(name, s, mtp):
    architecture = "qwen35moe" if s.experts else "qwen35"
    yield "general.architecture", STRING, architecture
    yield "general.name", STRING, "synthetic " + name
    numbers = {
        "block_count": s.layers + mtp, "context_length": 262144, "embedding_length": s.hidden, "feed_forward_length": s.ffn,
        "attention.head_count": s.heads, "attention.head_count_kv": s.kv_heads, "attention.key_length": s.head_dim,
        "attention.value_length": s.head_dim, "rope.dimension_count": s.rot, "full_attention_interval": 4, "ssm.conv_kernel": 4,
        "ssm.state_size": s.state, "ssm.group_count": s.k_heads, "ssm.time_step_rank": s.v_heads,
        "ssm.inner_size": s.v_heads * s.state, "vocab_size": s.vocab}
    if mtp:
        numbers["nextn_predict_layers"] = 1
    if s.experts:
        numbers |= {"expert_count": s.experts, "expert_used_count": s.used, "expert_feed_forward_length": s.ffn,
                    "expert_shared_feed_forward_length": s.ffn}
    for key, number in numbers.items():
        yield f"{architecture}.{key}", U32, number
    yield f"{architecture}.attention.layer_norm_rms_epsilon", FLOAT, 1e-6
    yield f"{architecture}.rope.freq_base", FLOAT, 1e7
    yield f"{architecture}.rope.dimension_sections", ARRAY, s.sections
    yield "tokenizer.ggml.model", STRING, "no_vocab"


def text(x):
    return struct.pack("<Q", len(x.encode())) + x.encode()


def pack(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        return struct.pack(f"<IQ{len(value)}i", I32, len(value), *value)
    return struct.pack("<I" if kind == U32 else "<f", value)


def floats(rng, name, n):
    if name.endswith("ssm_a"):
        return -rng.uniform(0.05, 1, n)
    if name.endswith("dt.bias"):
        return rng.uniform(-4, -1, n)
    if "conv1d" in name:
        return rng.normal(0, 0.5, n)
    if "gate_inp" in name:
        return rng.uniform(-0.6, 0.6, n)
    return np.ones(n)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("--mtp", action="store_true", help="with a layer for drafts")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng, shape = np.random.default_rng(a.seed), SHAPES[a.shape]
    entries, keys = list(tensors(shape, a.mtp)), list(metadata(a.shape, shape, a.mtp))
    head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(keys)))
    for key, kind, value in keys:
        head += text(key) + struct.pack("<I", kind) + pack(kind, value)
    offset, sizes = 0, []
    for name, kind, extents in entries:
        per, size = BLOCK[kind]
        sizes.append(int(np.prod(extents)) // per * size)
        head += text(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, kind, offset)
        offset += sizes[-1] + -sizes[-1] % 32
    head += b"\0" * (-len(head) % 32)
    pools = {}  # a large file repeats 65,536 blocks of each kind
    with open(a.out, "wb") as f:
        f.write(head)
        for (name, kind, extents), size in zip(entries, sizes):
            if kind == F32:
                f.write(floats(rng, name, size // 4).astype(np.float32).tobytes())
            else:
                sigma = 1.0 if "token_embd" in name else extents[0] ** -0.5
                made = pools.get((kind, sigma)) or blocks(rng, kind, sigma, 65536)
                pools[kind, sigma] = made
                if a.shape == "moe":  # where every tensor is smaller than that, each gets its own
                    made = blocks(rng, kind, sigma, size // BLOCK[kind][1])
                for at in range(0, size, len(made)):
                    f.write(made[:size - at])
            f.write(b"\0" * (-size % 32))
    print(f"{a.out}: {(offset + len(head)) / 2**20:.1f} MiB")


main()
