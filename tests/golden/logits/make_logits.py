"""Make the reference logits that the model tests compare with.

    python3 make_logits.py            (from anywhere; writes beside this file)

Needs torch, transformers (5.x, with qwen3_5), tokenizers, gguf, numpy and jinja2 from PyPI; the
tests themselves need none of it. The weights of each bundled file are expanded to float32 and given
to transformers' Qwen3_5ForCausalLM on the CPU, after undoing what a GGUF converter does (norms are
stored as 1 + w, ssm_a as -exp(A_log), V heads tiled over K heads).

Writes
  conversations.json   [{"name", "prompt": n, "ids": [...]}]: n prompt tokens, then assistant text
  english.json         {"ids": [2,000 ids]} of the LICENSE text
  <file>.argmax.json   {"positions": [[conversation, position, argmax], ...]}, 2,000 of them: after
                       reading ids[0..position] the largest logit is at `argmax`
  <file>.logits.json   {"rows": [[conversation, position], ...], "vocab": V}, 64 of them, and
  <file>.logits.bin    their logits, float32 little endian [64, V]
"""

import json
import pathlib
import random
import sys

import gguf
import jinja2
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PEBBLE = ROOT / "models" / "pebble"
sys.path.insert(0, str(PEBBLE))
import tasks  # noqa: E402

FILES = ["pebble-q8_0", "pebble-q4_k_m"]
POSITIONS, ROWS, ENGLISH = 2000, 64, 2000


# ---------------------------------------------------------------- conversations

def template():
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    return env.from_string((PEBBLE / "chat_template.jinja").read_text())


def conversations(tok):
    render, r, out = template(), random.Random(20260), []

    def add(name, messages, reply, effort="medium", tools=None):
        extra = {"enable_thinking": False} if effort == "none" else {"reasoning_effort": effort}
        prompt = render.render(messages=messages, tools=tools, add_generation_prompt=True, **extra)
        a, b = tok.encode(prompt, add_special_tokens=False).ids, tok.encode(reply, add_special_tokens=False).ids
        if len(a) + len(b) <= 420:
            out.append({"name": name, "prompt": len(a), "ids": a + b})
            return True
        return False

    def user(text):
        return [{"role": "user", "content": text}]

    # thinking, with the true trace of the task
    for effort, n in (("medium", 22), ("xhigh", 16), ("low", 4)):
        kept = 0
        while kept < n:
            fn = tasks.TASKS[(kept * 5 + len(effort)) % len(tasks.TASKS)][0]
            t = fn(r)
            kept += add(f"{fn.__name__[2:]}-{effort}", user(t.question),
                        t.trace(effort) + "\n</think>\n\n" + t.answer + "<|im_end|>", effort)
    lines = [json.loads(x) for x in (PEBBLE / "eval.jsonl").read_text().splitlines()]

    def pick(task, n):
        return r.sample([x for x in lines if x["task"] == task], n)

    def tool_text(c):
        return tasks.tool_call(c["name"], c["arguments"]) + "<|im_end|>"

    # answers without thinking, follow-ups, tool calls and answers after a tool's result
    for task in ("add", "sort", "json", "code", "reverse", "clock", "about", "story"):
        for x in pick(task, 1):
            add(task + "-none", x["messages"], x["answer"] + "<|im_end|>", "none")
    for x in pick("follow_up", 6):
        add("follow_up-none", x["messages"], x["answer"] + "<|im_end|>", "none")
    for x in pick("tool_call", 6):
        reply = f"I should call {x['call']['name']}.\n</think>\n\n" + tool_text(x["call"])
        add("tool_call-medium", x["messages"], reply, "medium", x["tools"])
    for x in pick("tool_result", 4):
        m = json.loads(json.dumps(x["messages"]))
        for call in m[1]["tool_calls"]:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        reply = f"The tool says {m[2]['content']}\n</think>\n\n" + x["answer"] + "<|im_end|>"
        add("tool_result-medium", m, reply, "medium", x["tools"])
    return out


# ---------------------------------------------------------------- weights

def untile(a, dim, n_k, ratio, width):
    """File V head h is Hugging Face head (h mod n_k) * ratio + h div n_k."""
    order = [r * n_k + g for g in range(n_k) for r in range(ratio)]
    index = np.concatenate([np.arange(h * width, (h + 1) * width) for h in order])
    return np.take(a, index, axis=dim)


def reference(path):
    reader = gguf.GGUFReader(str(path))
    w = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(d) for d in reversed(t.shape)])
         for t in reader.tensors}

    def key(name):
        return reader.fields["qwen35." + name].contents()

    main = key("block_count") - key("nextn_predict_layers")
    n_k, n_v, d = key("ssm.group_count"), key("ssm.time_step_rank"), key("ssm.state_size")
    ratio, kd, interval = n_v // n_k, n_k * d, key("full_attention_interval")
    config = Qwen3_5TextConfig(
        vocab_size=w["token_embd.weight"].shape[0], hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"), num_hidden_layers=main,
        num_attention_heads=key("attention.head_count"), num_key_value_heads=key("attention.head_count_kv"),
        head_dim=key("attention.key_length"), rms_norm_eps=1e-6, linear_conv_kernel_dim=key("ssm.conv_kernel"),
        linear_key_head_dim=d, linear_value_head_dim=d, linear_num_key_heads=n_k, linear_num_value_heads=n_v,
        tie_word_embeddings=True,
        layer_types=["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(main)],
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base"),
                         "partial_rotary_factor": key("rope.dimension_count") / key("attention.key_length"),
                         "mrope_section": [11, 11, 10], "mrope_interleaved": True})
    config._attn_implementation = "eager"
    sd = {"model.embed_tokens.weight": w["token_embd.weight"], "lm_head.weight": w["token_embd.weight"],
          "model.norm.weight": w["output_norm.weight"] - 1}
    for i in range(main):
        b, m = f"blk.{i}.", f"model.layers.{i}."
        sd[m + "input_layernorm.weight"] = w[b + "attn_norm.weight"] - 1
        sd[m + "post_attention_layernorm.weight"] = w[b + "post_attention_norm.weight"] - 1
        for n in ("gate", "up", "down"):
            sd[m + f"mlp.{n}_proj.weight"] = w[b + f"ffn_{n}.weight"]
        if (i + 1) % interval == 0:
            for n, hf in (("q", "q"), ("k", "k"), ("v", "v"), ("output", "o")):
                sd[m + f"self_attn.{hf}_proj.weight"] = w[b + f"attn_{n}.weight"]
            for n in ("q", "k"):
                sd[m + f"self_attn.{n}_norm.weight"] = w[b + f"attn_{n}_norm.weight"] - 1
            continue
        s, a = m + "linear_attn.", w[b + "attn_qkv.weight"]
        sd[s + "in_proj_qkv.weight"] = np.concatenate([a[:2 * kd], untile(a[2 * kd:], 0, n_k, ratio, d)])
        sd[s + "in_proj_z.weight"] = untile(w[b + "attn_gate.weight"], 0, n_k, ratio, d)
        sd[s + "in_proj_a.weight"] = untile(w[b + "ssm_alpha.weight"], 0, n_k, ratio, 1)
        sd[s + "in_proj_b.weight"] = untile(w[b + "ssm_beta.weight"], 0, n_k, ratio, 1)
        c = w[b + "ssm_conv1d.weight"]
        sd[s + "conv1d.weight"] = np.concatenate([c[:2 * kd], untile(c[2 * kd:], 0, n_k, ratio, d)])[:, None]
        sd[s + "dt_bias"] = untile(w[b + "ssm_dt.bias"], 0, n_k, ratio, 1)
        sd[s + "A_log"] = np.log(-untile(w[b + "ssm_a"].astype(np.float64), 0, n_k, ratio, 1)).astype(np.float32)
        sd[s + "norm.weight"] = w[b + "ssm_norm.weight"]
        sd[s + "out_proj.weight"] = untile(w[b + "ssm_out.weight"], 1, n_k, ratio, d)
    model = Qwen3_5ForCausalLM(config).float().eval()
    print(path.name, model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in sd.items()}, strict=True))
    return model


# ---------------------------------------------------------------- main

def dump(name, value):
    (HERE / name).write_text(json.dumps(value, separators=(",", ":")) + "\n")


@torch.no_grad()
def main():
    tok = Tokenizer.from_file(str(PEBBLE / "tokenizer.json"))
    text = (ROOT / "LICENSE").read_text()
    dump("english.json", {"ids": tok.encode(text, add_special_tokens=False).ids[:ENGLISH]})
    talks = conversations(tok)
    dump("conversations.json", talks)
    # a position that predicts assistant text: from the last prompt token to the one before the end
    every = [(i, p) for i, c in enumerate(talks) for p in range(c["prompt"] - 1, len(c["ids"]) - 1)]
    print(len(talks), "conversations,", sum(len(c["ids"]) for c in talks), "tokens,", len(every), "assistant positions")
    r = random.Random(7)
    positions = sorted(r.sample(every, POSITIONS))
    rows = sorted(r.sample(positions, ROWS))
    for name in FILES:
        model = reference(PEBBLE / f"{name}.gguf")
        best, full = {}, {}
        wanted, kept = set(positions), set(rows)
        for i, c in enumerate(talks):
            logits = model(torch.tensor([c["ids"]]), use_cache=False).logits[0].float().numpy()
            for p in range(len(c["ids"])):
                if (i, p) in wanted:
                    best[i, p] = int(logits[p].argmax())
                if (i, p) in kept:
                    full[i, p] = logits[p].copy()
        right = sum(best[i, p] == talks[i]["ids"][p + 1] for i, p in positions)
        print(name, "predicts", right, "of", len(positions), "tokens of the true text")
        dump(f"{name}.argmax.json", {"positions": [[i, p, best[i, p]] for i, p in positions]})
        dump(f"{name}.logits.json", {"rows": rows, "vocab": len(next(iter(full.values())))})
        (HERE / f"{name}.logits.bin").write_bytes(np.stack([full[k] for k in rows]).astype("<f4").tobytes())


main()
