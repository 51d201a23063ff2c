#!/usr/bin/env python3
"""Logits of one file in Ponder, in llama.cpp and in double precision, at the same positions.

    compare_logits.py --model FILE [--text FILE | --ids FILE | --peer-text | --random N [--seed N]]
                      [--positions N] [--reference [N]] [--binding DIR --library DIR] [--bin DIR] [--kv f16]

The ids are a text's, N random ones, conversations ({"prompt": tokens of it, "ids": [...]}, as in
tests/golden/logits/conversations.json), or by default a prompt and the model's greedy answer, which
Ponder writes or, with --peer-text, the peer. Of conversations and answers only the positions that
predict what the assistant says count, --positions of them. The peer is llama.cpp through the Python binding of PyPI's llama-cpp-python
(--binding: the folder that holds llama_cpp/, --library: the folder with libllama.so). Its row
against itself, prefill against one token at a time, comes with --peer-text: two ways that
llama.cpp itself takes to one logit (its decode also attends in f16). --reference also evaluates the file in double
precision (tests/reference_logits beside --bin), the first N positions if given. Needs numpy.
Prints figures, judges nothing:

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
PROMPT = b"<|im_start|>user\nWrite a long story about a lighthouse and its keeper.<|im_end|>\n<|im_start|>assistant\n"


def ours(a, ids):
    command = [f"{a.bin}/ponder-engine", "logits", a.model, "--full", "--top", "1", "--kv", a.kv, "--ctx", str(len(ids))]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    run.stdin.write(json.dumps(ids))
    run.stdin.close()
    rows = [np.array(json.loads(line)["logits"], dtype=np.float32) for line in run.stdout]
    if run.wait() != 0:
        sys.exit("ponder-engine logits failed")
    return np.stack(rows).astype(np.float64)


class Peer:
    def __init__(self, a):
        os.environ["LLAMA_CPP_LIB_PATH"] = a.library
        sys.path.insert(0, a.binding)
        import ctypes

        import llama_cpp as ll
        self.ll = ll
        self.quiet = ll.llama_log_callback(lambda *_: None)  # llama.cpp keeps no reference
        ll.llama_log_set(self.quiet, ctypes.c_void_p(0))
        ll.llama_backend_init()
        self.model = ll.llama_model_load_from_file(a.model.encode(), ll.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot load {a.model}")
        self.vocab = ll.llama_model_get_vocab(self.model)

    def context(self, size):
        params = self.ll.llama_context_default_params()
        params.n_ctx = max(256, size)
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = 2
        return self.ll.llama_init_from_model(self.model, params)

    def rows(self, context, ids, first=0):
        """Logits of each of `ids`, which stand at the positions from `first` on."""
        ll, rows = self.ll, []
        for start in range(0, len(ids), 512):
            part = ids[start:start + 512]
            batch = ll.llama_batch_init(len(part), 0, 1)
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, first + start + i, 1, 1
                batch.seq_id[i][0] = 0
            if ll.llama_decode(context, batch) != 0:
                sys.exit("llama_decode failed")
            shape = (ll.llama_vocab_n_tokens(self.vocab),)
            rows += [np.ctypeslib.as_array(ll.llama_get_logits_ith(context, i), shape=shape).copy() for i in range(len(part))]
            ll.llama_batch_free(batch)
        return np.stack(rows)

    def logits(self, ids):
        context = self.context(len(ids))
        rows = self.rows(context, ids)
        self.ll.llama_free(context)
        return rows.astype(np.float64)

    def greedy(self, count):
        """Ids of PROMPT and `count` tokens after it, and the logits that chose those."""
        buffer = (self.ll.llama_token * 256)()
        n = self.ll.llama_tokenize(self.vocab, PROMPT, len(PROMPT), buffer, 256, False, True)
        ids = list(buffer[:n])
        context = self.context(n + count)
        chosen = [self.rows(context, ids)[-1]]
        while len(ids) < n + count:
            ids.append(int(chosen[-1].argmax()))
            if len(ids) < n + count:
                chosen.append(self.rows(context, ids[-1:], len(ids) - 1)[0])
        return ids, np.stack(chosen).astype(np.float64)


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


def tokens(a, text):
    out = subprocess.run([f"{a.bin}/ponder-engine", "tokenize", a.model, "--special"], input=text, capture_output=True, check=True).stdout
    return json.loads(out)


def sequences(a, peer):
    """Ids, the first position that counts, the one after the last; and the peer's logits if it wrote them."""
    if a.ids:
        left, out = a.positions, []
        for c in json.loads(pathlib.Path(a.ids).read_text()):
            first = c["prompt"] - 1
            count = min(left, len(c["ids"]) - 1 - first)
            if count > 0:
                out.append((c["ids"][:first + count + 1], first, first + count))
                left -= count
        return out, None
    chosen = None
    if a.random:
        ids, first, end = np.random.default_rng(a.seed).integers(0, a.vocab, a.random).tolist(), 0, a.random
    elif a.text:
        ids = tokens(a, pathlib.Path(a.text).read_bytes())[:a.positions]
        first, end = 0, len(ids)
    else:
        if a.peer_text:
            ids, chosen = peer.greedy(a.positions)
        else:
            command = [f"{a.bin}/ponder-engine", "generate", a.model, "-n", str(a.positions), "--ignore-eos", "--ids", "--ctx", str(a.positions + 64)]
            run = subprocess.run(command, input=PROMPT, capture_output=True, check=True)
            ids = tokens(a, PROMPT) + json.loads(run.stderr.decode().strip().splitlines()[-1])["ids"][:a.positions]
        first, end = len(ids) - a.positions - 1, len(ids) - 1
    return [(ids, first, end)], chosen


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    p.add_argument("--binding")
    p.add_argument("--library")
    p.add_argument("--reference", type=int, nargs="?", const=1 << 30, default=0, metavar="N")
    p.add_argument("--random", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--vocab", type=int, default=4096, help="random ids are below this")
    p.add_argument("--text")
    p.add_argument("--ids")
    p.add_argument("--peer-text", action="store_true")
    p.add_argument("--positions", type=int, default=512)
    p.add_argument("--kv", default="f16")
    a = p.parse_args()
    if a.peer_text and not a.binding:
        p.error("--peer-text needs --binding and --library")
    peer = Peer(a) if a.binding else None
    texts, chosen = sequences(a, peer)

    def logits(model):
        return np.concatenate([model(ids)[first:end] for ids, first, end in texts])

    print(f"{pathlib.Path(a.model).name}, {sum(end - first for _, first, end in texts)} positions\n"
          "| pair | positions | top-1 | KL | largest |\n|---|---|---|---|---|")
    mine = logits(lambda ids: ours(a, ids))
    theirs = logits(peer.logits) if peer is not None else None
    if peer is not None:
        row("llama.cpp, ponder", theirs, mine)
    if chosen is not None:
        row("llama.cpp, llama.cpp token by token", theirs, chosen)
    if a.reference:
        if len(texts) > 1 and a.reference < a.positions:
            p.error("--reference N takes one text")
        truth = np.concatenate([reference(a, ids[:min(end, first + a.reference)])[first:] for ids, first, end in texts])
        n = len(truth)
        row("double, ponder", truth, mine[:n])
        if peer is not None:
            row("double, llama.cpp", truth, theirs[:n])


main()
