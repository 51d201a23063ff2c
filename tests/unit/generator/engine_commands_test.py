#!/usr/bin/env python3
"""The commands of ponder-engine on the bundled model: what they print and how they exit.

    engine_commands_test.py ENGINE MODEL_DIR
"""
import json
import math
import pathlib
import random
import resource
import struct
import subprocess
import sys
import tempfile

ENGINE, MODELS = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL = str(MODELS / "pebble-q8_0.gguf")
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)
    return condition


def engine(*arguments, stdin=b"", address_space=None):
    if isinstance(stdin, str):
        stdin = stdin.encode()

    def limit():
        if address_space:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    return subprocess.run([ENGINE, *map(str, arguments)], input=stdin, capture_output=True, timeout=110,
                          preexec_fn=limit)


def refused(done, what):
    said = done.stderr.decode(errors="replace").strip().splitlines()
    check(done.returncode == 1 and len(said) == 1 and done.stdout == b"", f"{what}: {done.returncode} {said[-3:]}")


def lines(done):
    check(done.returncode == 0, f"exit {done.returncode}: {done.stderr[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def text():
    made = random.Random(5)
    raw = bytes(made.randrange(256) for _ in range(3000))
    for sample in (b"", b"a", "Grüße 世界 \n\n  x".encode(), b"<|im_end|>", raw):
        ids = lines(engine("tokenize", MODEL, stdin=sample))[0]
        back = engine("detokenize", MODEL, stdin=json.dumps(ids))
        check(back.returncode == 0 and back.stdout == sample, f"detokenize undoes tokenize of {sample[:20]}")
    special = lines(engine("tokenize", MODEL, "--special", stdin=b"<|im_end|>"))[0]
    plain = lines(engine("tokenize", MODEL, stdin=b"<|im_end|>"))[0]
    check(len(special) == 1 and len(plain) > 1, "--special makes one id of a special token's text")
    body = {"messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "none"}
    shown = lines(engine("render", MODEL, stdin=json.dumps(body)))[0]
    check(shown["prompt"].endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n"), "render follows the effort")
    check(shown["ids"] == lines(engine("tokenize", MODEL, "--special", stdin=shown["prompt"]))[0], "and gives its ids")


def info():
    for name in ("pebble-q8_0.gguf", "pebble-q4_k_m.gguf"):
        small = lines(engine("info", MODELS / name, "--json", "--ctx", 1024))[0]
        large = lines(engine("info", MODELS / name, "--json", "--ctx", 32768))[0]
        check(small["arch"] == "qwen35" and small["n_ctx_train"] == 32768 and small["unsupported"] == [], f"{name}: facts")
        check(large["memory"]["kv"] == 32 * small["memory"]["kv"], f"{name}: KV grows with --ctx")
        parts = small["memory"]
        bare = lines(engine("info", MODELS / name, "--json", "--ctx", 1024, "--spec", 0))[0]["memory"]
        check(all(bare[k] < parts[k] for k in ("weights", "kv", "total")), f"{name}: the draft layer counts: {bare}")
        check(parts["total"] == sum(parts[k] for k in ("weights", "kv", "state", "scratch")), f"{name}: the total adds up")
        size = (MODELS / name).stat().st_size
        bytes_ = sum(t["bytes"] for t in small["tensors"].values())
        check(0.95 * size < bytes_ < size, f"{name}: tensors fill the file")
        human = engine("info", MODELS / name)
        check(human.returncode == 0 and b"qwen35" in human.stdout and b"MiB" in human.stdout, f"{name}: for people")


def logits_and_generate():
    prompt = "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    done = engine("generate", MODEL, "-n", 60, "--temp", 0, "--ids", stdin=prompt)
    told = json.loads(done.stderr.splitlines()[-1])
    check(done.stdout.rstrip().endswith(b"42"), f"greedy generate answers: {done.stdout[-40:]}")
    check(told["stop"] == "end_token" and told["tokens"] == len(told["ids"]), f"and says how it ended: {told}")
    check(engine("detokenize", MODEL, stdin=json.dumps(told["ids"])).stdout == done.stdout, "the ids are the text's")
    silent = json.loads(engine("generate", MODEL, "-n", 3, stdin=prompt).stderr.splitlines()[-1])
    check(silent["ids"] is None and silent["stop"] == "output_limit", "without --ids no ids; -n is a limit")

    ids = lines(engine("tokenize", MODEL, "--special", stdin=prompt))[0] + told["ids"]
    rows = lines(engine("logits", MODEL, "--top", 3, stdin=json.dumps(ids)))
    check([r["pos"] for r in rows] == list(range(len(ids))) and [r["id"] for r in rows] == ids, "a line a position")
    n = told["prompt_tokens"]
    check([r["top"][0][0] for r in rows[n - 1:-1]] == told["ids"], "greedy tokens are the first of each line")
    for chunk in (1, 7, 64):
        other = lines(engine("logits", MODEL, "--top", 3, "--chunk", chunk, "--threads", 1, stdin=json.dumps(ids)))
        check(other == rows, f"the same to the last bit in chunks of {chunk} on one thread")
    full = lines(engine("logits", MODEL, "--top", 4096, "--full", stdin=json.dumps(ids[:2])))
    for row in full:
        values = row["logits"]
        total = max(values) + math.log(sum(math.exp(v - max(values)) for v in values))
        check(abs(sum(math.exp(p) for _, p in row["top"]) - 1) < 1e-9, "probabilities add up to one")
        check(all(abs(values[i] - total - p) < 1e-9 for i, p in row["top"]), "top is the log-softmax of logits")

    seeded = [engine("generate", MODEL, "-n", 30, "--temp", 2, "--seed", s, stdin=prompt).stdout for s in (1, 1, 2)]
    check(seeded[0] == seeded[1] != seeded[2], "a seed fixes the text, another changes it")
    for sampling in (("--temp", 0), ("--temp", 1.5, "--seed", 3)):
        said = [engine("generate", MODEL, "-n", 60, *sampling, "--spec", spec, stdin=prompt) for spec in (0, 1, 3, 5, -1)]
        check(len({done.stdout for done in said}) == 1, f"drafts never change the text: {sampling}")
        counts = [json.loads(done.stderr.splitlines()[-1]) for done in said]
        check(counts[0]["drafted"] == 0 and all(0 < c["accepted"] <= c["drafted"] for c in counts[1:4]), f"counted: {counts}")
    on = json.loads(engine("generate", MODEL, "-n", 80, "--ignore-eos", "--ids", stdin=prompt).stderr.splitlines()[-1])
    check(on["tokens"] == 80 and on["ids"][:told["tokens"]] == told["ids"], "--ignore-eos goes on")


def measures():
    want = ["cold", "warm", "restored", "host", "chunked", "batched", "speculative", "resumed"]
    for kv in ("f32", "f16", "q8_0", "r4"):
        legs = lines(engine("selftest", MODEL, "--kv", kv))
        check([leg["leg"] for leg in legs] == want, f"selftest's legs with KV in {kv}: {legs}")
        check(all(leg["equal"] and leg["first_difference"] is None for leg in legs), f"all equal with KV in {kv}: {legs}")
    rows = lines(engine("bench", "-p", "32,64", "-n", 8, "-d", "16,100", "-r", 2, "--threads", 1, MODEL))
    want = [(test, depth) for depth in (16, 100) for test in ("pp32", "pp64", "tg8")]
    check([(r["test"], r["depth"]) for r in rows] == want, f"bench's rows: {rows}")
    for r in rows:
        speed = r["tokens_per_s"]
        check(0 < speed["min"] <= speed["median"] <= speed["max"], f"{r['test']}: order of speeds")
        fraction = r["bytes_per_token"] * speed["median"] / 1e9 / r["read_gb_per_s"]
        check(abs(fraction - r["read_fraction"]) < 0.01 * fraction + 1e-6, f"{r['test']}: fraction of what memory gives")
        check(r["threads"] == 1 and r["reps"] == 2 and r["device"] == "cpu", f"{r['test']}: settings")
    check(lines(engine("bench", MODEL, "-p", 0, "-n", 4, "-r", 1))[0]["test"] == "tg4", "-p 0 leaves prefill out")
    plain, drafted = (lines(engine("bench", MODEL, "-p", 0, "-n", 64, "-r", 1, "--spec", spec))[0] for spec in (0, 3))
    check(plain["spec"] == 0 and drafted["spec"] == 3, "bench says what was drafted")
    check(drafted["bytes_per_token"] < plain["bytes_per_token"], "with drafts the weights are read less often")


def changed_files():
    """The bundled file with a few of its bytes changed."""
    whole = (MODELS / "pebble-q8_0.gguf").read_bytes()
    hi = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "changed.gguf"

        def write(at, new):
            model.write_bytes(whole[:at] + new + whole[at + len(new):])

        write(whole.index(b"{%- ", whole.index(b"tokenizer.chat_template")), b"{%- nonsense\n")
        refused(engine("render", model, stdin=hi), "render with a template that cannot be read")
        check(lines(engine("tokenize", model, stdin=b"a"))[0] != [], "but tokens need no template")
        check(len(lines(engine("info", model, "--json"))[0]["unsupported"]) == 1, "and info names it")

        key = b"tokenizer.ggml.eos_token_id"
        for wrong in (0x7FFFFFFF, 0xFFFFFFFF):
            write(whole.index(key) + len(key) + 4, struct.pack("<I", wrong))
            for command in ("tokenize", "render", "generate"):
                refused(engine(command, model, stdin=hi), f"{command} with the end token {wrong}")

        key = b"general.name"
        write(whole.index(key) + len(key) + 12, b"\xff\n")
        done = engine("info", model, "--json")
        check(json.loads(done.stdout.decode())["name"].startswith("\ufffd\n"), "a name that is no UTF-8 makes no bad JSON")

        write(len(whole) // 2, b"\xff" * (1 << 17))  # scales that are no numbers
        rows = lines(engine("logits", model, "--top", 3, stdin="[5, 6]"))
        check([r["top"] for r in rows] == [[[0, None], [1, None], [2, None]]] * 2, f"logits that are no numbers: {rows}")
        check(engine("generate", model, "-n", 3, stdin="a").returncode == 0, "generate goes on with them")


def limits():
    numbers = b"[" + b"1," * (20 << 20) + b"1]"
    refused(engine("detokenize", MODEL, stdin=numbers, address_space=300 << 20), "more ids than memory holds")
    refused(engine("tokenize", MODEL, stdin=bytes(65 << 20)), "more text than is read")
    refused(engine("generate", MODEL, "--threads", 1000, stdin="a", address_space=1 << 30), "threads that the system refuses")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(f"'{ENGINE}' tokenize '{MODEL}' < '{folder}'", shell=True, capture_output=True)
        refused(done, "stdin that is a folder")


def homes():
    with tempfile.TemporaryDirectory() as home:
        (pathlib.Path(home) / "models").mkdir()
        (pathlib.Path(home) / "models" / "mine.gguf").symlink_to(pathlib.Path(MODEL).resolve())
        for arguments in (("--home", home, "tokenize", "mine.gguf"), ("tokenize", "mine.gguf", "--home", home),
                          ("tokenize", MODEL, "--home", home)):
            check(lines(engine(*arguments, stdin=b"a"))[0] == [64], f"--home anywhere: {arguments}")
        refused(engine("tokenize", "other.gguf", "--home", home), "a model that is not there either")


def exits():
    with tempfile.TemporaryDirectory() as folder:
        noise = pathlib.Path(folder) / "noise.gguf"
        noise.write_bytes(b"GGUF" + bytes(range(256)) * 10)
        bad = [
            ("info", folder + "/none.gguf"), ("info", noise), ("logits", noise), ("bench", MODEL, "--device", "cuda"), ("generate", MODEL),
            ("bench", MODEL, "-p", 512, "-n", 0, "--ctx", 256), ("info", MODEL, "--ctx", 40000),
        ]
        for arguments in bad:
            refused(engine(*arguments), arguments)
    for stdin in ("[1, 99999]", "[-1]", "[1.5]", "{}", "", "[1", json.dumps([5] * 300)):
        done = engine("logits", MODEL, "--ctx", 256, stdin=stdin)
        check(done.returncode == 1 and len(done.stderr.splitlines()) == 1, f"logits of {stdin[:20]!r}: {done.returncode}")
    for stdin in ("", "[]", '{"messages": []}', '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}'):
        check(engine("render", MODEL, stdin=stdin).returncode == 1, f"render of {stdin[:30]!r}")
    for usage in ((), ("frob",), ("info",), ("generate", MODEL, "-n", "x"), ("info", MODEL, "--kv", "f8"),
                  ("generate", MODEL, "--temp", "-1"), ("bench", MODEL, "--device", "tpu"), ("generate", MODEL, "--spec", 6), ("bench", MODEL, "--spec", -2),
                  ("info", MODEL, "--frob")):
        check(engine(*usage).returncode == 2, f"usage {usage}")
    check(engine("--help").returncode == 0 and engine("--version").returncode == 0, "help and version")


for part in (text, info, logits_and_generate, measures, changed_files, limits, homes, exits):
    part()
print("ok" if not failures else f"{len(failures)} failures")
sys.exit(1 if failures else 0)
