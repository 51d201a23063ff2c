#!/usr/bin/env python3
"""Logits of one file in Ponder, in llama.cpp and in double precision, at the same positions.

    compare_logits.py --model FILE [--text FILE] [--random N] [--positions N] [--reference]
                      [--binding DIR --library DIR] [--bin build/release/bin] [--kv f16]

The ids are a text's (default: 512 tokens of the model's own greedy text), or N random ones. The
peer is llama.cpp through the Python binding of PyPI's llama-cpp-python (--binding: the folder that
holds llama_cpp/, --library: the folder with libllama.so). --reference also evaluates the file in
double precision (tests/reference_logits beside --bin). Needs numpy. Prints figures, judges nothing:

    top-1     share of positions with the same likeliest token
    KL        mean of sum p ln(p / q) over positions, p being the left one
    largest   largest difference of a logit over the largest logit
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ours(a, ids):
    command = [f"{a.bin}/ponder-engine", "logits", a.model, "--full", "--top", "1", "--kv", a.kv, "--ctx", str(len(ids))]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    run.stdin.write(json.dumps(ids))
    run.stdin.close()
    rows = [np.array(json.loads(line)["logits"], dtype=np.float32) for line in run.stdout]
    if run.wait() != 0:
        sys.exit("ponder-engine logits failed")
    return np.stack(rows).astype(np.float64)


def theirs(a, ids):
    os.environ["LLAMA_CPP_LIB_PATH"] = a.library
    sys.path.insert(0, a.binding)
    import ctypes

    import llama_cpp as ll
    quiet = ll.llama_log_callback(lambda *_: None)  # llama.cpp keeps no reference
    ll.llama_log_set(quiet, ctypes.c_void_p(0))
    ll.llama_backend_init()
    model = ll.llama_model_load_from_file(a.model.encode(), ll.llama_model_default_params())
    params = ll.llama_context_default_params()
    params.n_ctx = max(256, len(ids))
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 2
    context = ll.llama_init_from_model(model, params)
    vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    rows = []
    for start in range(0, len(ids), 512):
        part = ids[start:start + 512]
        batch = ll.llama_batch_init(len(part), 0, 1)
        batch.n_tokens = len(part)
        for i, token in enumerate(part):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, start + i, 1, 1
            batch.seq_id[i][0] = 0
        if ll.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")
        for i in range(len(part)):
            rows.append(np.ctypeslib.as_array(ll.llama_get_logits_ith(context, i), shape=(vocab,)).astype(np.float64))
        ll.llama_batch_free(batch)
    return np.stack(rows)


def reference(a, ids):
    out = subprocess.run([pathlib.Path(a.bin).parent / "tests/reference_logits", a.model], input=json.dumps(ids).encode(),
                         capture_output=True, check=True).stdout
    return np.frombuffer(out, dtype=np.float64).reshape(len(ids), -1)


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def row(name, p, q):
    n = min(p.shape[1], q.shape[1])
    p, q = p[:, :n], q[:, :n]
    lp, lq = log_softmax(p), log_softmax(q)
    kl = (np.exp(lp) * (lp - lq)).sum(axis=1)
    top = (p.argmax(axis=1) == q.argmax(axis=1)).mean()
    largest = np.abs(p - q).max() / np.abs(p).max()
    print(f"| {name} | {len(p)} | {100 * top:.2f} % | {kl.mean():.2e} | {largest:.2e} |", flush=True)


def ids_of(a):
    if a.random:
        return [int(x) for x in np.random.default_rng(1).integers(0, a.vocab, a.random)]
    if a.text:
        out = subprocess.run([f"{a.bin}/ponder-engine", "tokenize", a.model, "--special"], input=pathlib.Path(a.text).read_bytes(),
                             capture_output=True, check=True).stdout
        return json.loads(out)[:a.positions]
    # The model's own greedy text after a short opening.
    prompt = b"<|im_start|>user\nWrite a long story about a lighthouse and its keeper.<|im_end|>\n<|im_start|>assistant\n"
    command = [f"{a.bin}/ponder-engine", "generate", a.model, "-n", str(a.positions), "--ignore-eos", "--ids", "--ctx", str(a.positions + 64)]
    run = subprocess.run(command, input=prompt, capture_output=True, check=True)
    return json.loads(run.stderr.decode().strip().splitlines()[-1])["ids"][:a.positions]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    p.add_argument("--binding")
    p.add_argument("--library")
    p.add_argument("--reference", action="store_true")
    p.add_argument("--random", type=int, default=0)
    p.add_argument("--vocab", type=int, default=4096, help="random ids are below this")
    p.add_argument("--text")
    p.add_argument("--positions", type=int, default=512)
    p.add_argument("--kv", default="f16")
    a = p.parse_args()
    ids = ids_of(a)
    print(f"{pathlib.Path(a.model).name}, {len(ids)} positions\n| pair | positions | top-1 | KL | largest |\n|---|---|---|---|---|")
    mine = ours(a, ids)
    peer = theirs(a, ids) if a.binding else None
    if a.reference:
        truth = reference(a, ids)
        row("double, ponder", truth, mine)
        if peer is not None:
            row("double, llama.cpp", truth, peer)
    if peer is not None:
        row("llama.cpp, ponder", peer, mine)


main()
