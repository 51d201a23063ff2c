#!/usr/bin/env python3
"""The bundled question set through /v1/chat/completions: eval_test.py BIN_DIR FILE.gguf EFFORT LEAST MOST

Answers are compared exactly, tool-call arguments with their JSON types. At most MOST may be right,
too: effort none that scores like medium would mean that the effort never reached the model.
"""
import concurrent.futures
import sys

import harness
from harness import ROOT, Daemon, check, finish, json

MODEL, EFFORT, LEAST, MOST = sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])


def same(a, b):
    """Equal in value and JSON type; 12 and 12.0 are the same number, true and 1 are not."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    number = lambda x: isinstance(x, (int, float)) and not isinstance(x, bool)
    return a == b and (type(a) is type(b) or number(a) and number(b))


def ask(daemon, row):
    body = {"model": "pebble", "messages": row["messages"], "temperature": 0, "max_tokens": 3000,
            "reasoning_effort": EFFORT}
    if row.get("tools"):
        body["tools"] = row["tools"]
    reply = daemon.call("POST", "/v1/chat/completions", body, timeout=300)
    if reply.status != 200:
        return False, reply.body.decode()[:300]
    message = reply.json["choices"][0]["message"]
    if "call" in row:
        calls = message.get("tool_calls") or [{}]
        function = calls[0].get("function", {})
        got = {"name": function.get("name"), "arguments": json.loads(function.get("arguments") or "null")}
        return len(calls) == 1 and same(got, row["call"]), got
    return (message.get("content") or "").strip() == row["answer"].strip(), message.get("content")


def main():
    check(not same(1, True) and not same("1", 1) and same(12, 12.0), "the comparison tells types apart")
    rows = [json.loads(line) for line in open(ROOT / "models/pebble/eval.jsonl")]
    with Daemon("--model", ROOT / "models/pebble" / MODEL, "--ctx", "8192") as daemon:
        daemon.start()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda row: ask(daemon, row), rows))
    right = sum(good for good, _ in results)
    calls = [good for (good, _), row in zip(results, rows) if "call" in row]
    for (good, got), row in list(zip(results, rows)):
        if not good and EFFORT != "none":
            print("MISS", row["task"], row["messages"][-1]["content"][:100], "GOT", str(got)[:100])
    print(f"{MODEL} at {EFFORT}: {right} of {len(rows)} right, {sum(calls)} of {len(calls)} tool calls")
    check(LEAST <= right <= MOST, f"{right} right; {LEAST} to {MOST} are expected")
    if EFFORT != "none":
        check(all(calls) and len(calls) == 20, f"{sum(calls)} of {len(calls)} tool calls exact")
    finish("questions")


main()
