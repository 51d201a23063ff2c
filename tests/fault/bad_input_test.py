#!/usr/bin/env python3
"""Bad input at every door: a clear error, nothing lost, the next request works."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import PLANTED, Daemon, Mcp, check, cli, door, finish, json, subprocess, time, BIN, ROOT

CTX = 600


def main():
    with Daemon("--engine", "stub", "--ctx", str(CTX)) as daemon:
        daemon.start()
        via = door(daemon)
        kept = daemon.submit("kept [[stub tokens=20]]", via=via, max_answer_tokens=100, max_reasoning_tokens=100).json["job_id"]
        daemon.wait_terminal(kept, via=via)
        long_line = b'{"task": "' + b"x" * (40 << 20) + b'"}'
        big_line = b'{"task": "' + b"x" * (20 << 20) + b'"}'
        deep = b'{"task": "x", "schema": ' + b"[" * 10000 + b"]" * 10000 + b"}"
        chat = lambda **more: json.dumps({"messages": [{"role": "user", "content": "hi"}], **more}).encode()
        cases = [  # (name, method, target, raw body, statuses, a word that the message must hold)
            ("a 20 MiB line", "POST", "/v1/jobs", big_line, {400, 413}, ""),
            ("a 40 MiB line", "POST", "/v1/jobs", long_line, {413}, ""),
            ("10,000 nested arrays", "POST", "/v1/jobs", deep, {400}, "nested"),
            ("cut JSON", "POST", "/v1/jobs", b'{"task": "x', {400}, "JSON"),
            ("no JSON", "POST", "/v1/jobs", b"hello", {400}, "JSON"),
            ("an array", "POST", "/v1/jobs", b"[]", {400}, "object"),
            ("bad UTF-8", "POST", "/v1/jobs", b'{"task": "\xff\xfe"}', {400}, "UTF-8"),
            ("a key twice", "POST", "/v1/jobs", b'{"task": "a", "task": "b"}', {400}, "twice"),
            ("nothing to do", "POST", "/v1/jobs", b"{}", {400}, "task"),
            ("task and messages", "POST", "/v1/jobs", b'{"task": "a", "messages": [{"role": "user", "content": "b"}]}', {400}, "task"),
            ("an unknown effort", "POST", "/v1/jobs", b'{"task": "a", "effort": "extreme"}', {400}, "xhigh"),
            ("an effort of another type", "POST", "/v1/jobs", b'{"task": "a", "effort": [1]}', {400}, "effort"),
            ("a negative budget", "POST", "/v1/jobs", b'{"task": "a", "max_answer_tokens": -1}', {400}, "max_answer_tokens"),
            ("an infinite deadline", "POST", "/v1/jobs", b'{"task": "a", "deadline_s": 1e400}', {400}, ""),
            ("a number as task", "POST", "/v1/jobs", b'{"task": 5}', {400}, "task"),
            ("an unknown parent", "POST", "/v1/jobs", b'{"task": "a", "continue_from": "zzzzzzzzzzzzzzzzzzzzzzzzzz"}', {404}, ""),
            ("a bad parent id", "POST", "/v1/jobs", b'{"task": "a", "continue_from": "../x"}', {400, 404}, ""),
            ("an unknown chat effort", "POST", "/v1/chat/completions", chat(reasoning_effort="extreme"), {400}, "xhigh"),
            ("a picture", "POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:,"}}]}]}).encode(), {400}, "image_url"),
            ("a bad temperature", "POST", "/v1/chat/completions", chat(temperature=-1), {400}, "temperature"),
            ("no messages", "POST", "/v1/chat/completions", b'{"messages": []}', {400}, "messages"),
            ("a bad job id", "GET", "/v1/jobs/..%2f..%2fetc", None, {400, 404}, ""),
            ("an unknown job id", "GET", "/v1/jobs/zzzzzzzzzzzzzzzzzzzzzzzzzz", None, {404}, ""),
            ("a bad wait", "GET", f"/v1/jobs/{kept}?wait_s=soon", None, {400}, "wait_s"),
            ("a bad part", "GET", f"/v1/jobs/{kept}/result?part=all", None, {400}, "part"),
            ("a negative offset", "GET", f"/v1/jobs/{kept}/result?offset=-5", None, {400}, "offset"),
            ("an unknown path", "GET", "/v1/nothing", None, {404}, ""),
            ("a wrong method", "PUT", "/v1/jobs", b"{}", {405}, ""),
        ]
        for name, method, target, body, statuses, word in cases:
            try:
                reply = daemon.call(method, target, raw=body, via=via, timeout=5)
            except (OSError, ValueError) as error:
                check(name.startswith("a 40"), f"{name}: no answer ({error})")
            else:
                check(reply.status in statuses, f"{name}: {reply.status}, wanted {statuses}: {reply.body[:200]}")
                error = reply.json.get("error", {})
                check(error.get("message") and error.get("code") and error.get("type"),
                      f"{name}: the error has a type, a code and a message: {reply.body[:200]}")
                check(word in error.get("message", "") or word == error.get("param"),
                      f"{name}: the message names {word!r}: {error.get('message')}")
            try:
                check(daemon.call("GET", f"/v1/jobs/{kept}", via=via, timeout=3).json["state"] == "completed",
                      f"after {name} the next request works")
            except (OSError, ValueError) as error:
                check(False, f"after {name} the next request works ({error})")
            if PLANTED and len(cases) and not name.startswith("a "):
                break
        if not PLANTED:
            window(daemon)
            over_mcp(daemon, kept)
            over_cli(daemon)
    if not PLANTED:
        bad_models()
    finish("bad input")


def window(daemon):
    """Exactly the prompt that fits is accepted; one token more is refused with the numbers."""
    def count(words):
        reply = daemon.submit("w " * words, max_reasoning_tokens=100, max_answer_tokens=100, force_new=True)
        return reply

    low, high = 1, 2000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle).status == 201 else (low, middle)
    fits, over = count(low), count(high)
    error = over.json["error"]
    check(over.status == 400 and error["code"] == "context_length_exceeded", f"one over the window: {over.status} {error}")
    check(error.get("n_ctx") == CTX and error.get("n_reserved") == 200, f"the refusal has the numbers: {error}")
    check(error.get("n_prompt_tokens") == CTX - 200 + 1, f"it is over the window by one token: {error}")
    tokens = fits.json["tokens"]
    check(tokens["prompt"] == CTX - 200, f"the largest that fits fills the window: {tokens}")
    check(daemon.wait_terminal(fits.json["job_id"])["state"] in ("completed", "incomplete"), "it runs")


def over_mcp(daemon, kept):
    mcp = Mcp(daemon.home)
    send = lambda text: (mcp.process.stdin.write(text + "\n"), mcp.process.stdin.flush())
    for junk in ("{", "[" * 10000, "null", '{"jsonrpc": "2.0"}', '"' + "x" * (9 << 20) + '"', "\x00\x01"):
        send(junk)
        alive = mcp.request("tools/list", timeout=10)
        check(alive is not None and len(alive["result"]["tools"]) == 6, f"after {junk[:20]!r} the next request works")
    for name, arguments in (("ask", {}), ("ask", {"question": 5}), ("ask", {"question": "x", "effort": "extreme"}),
                            ("ask", {"question": "x", "wait_s": -1}), ("result", {"job_id": "../x"}),
                            ("result", {"job_id": kept, "part": "all"}), ("status", {"job_id": "zzzzzzzzzzzzzzzzzzzzzzzzzz"}),
                            ("submit", {"task": "x", "nonsense": 1}), ("cancel", {}),
                            ("submit", {"task": "x", "continue_from": kept, "mode": "resume"}),
                            ("submit", {"task": "x", "on_limit": "perhaps"}),
                            ("ask", {"question": "x", "files": ["/etc/passwd"]}), ("ask", {"question": "x", "files": ["../x"]})):
        result = mcp.tool(name, **arguments)
        text = (result.get("content") or [{}])[0].get("text", "")
        check(result.get("isError") is True and len(result["content"]) == 1 and len(text) > 20,
              f"{name}{arguments}: a tool error with a sentence, got {str(result)[:200]}")
    reply = mcp.request("tools/call", {"name": "nothing", "arguments": {}})
    check(reply.get("error", {}).get("code") == -32602, f"an unknown tool is -32602: {reply}")
    reply = mcp.request("no/such/method")
    check(reply.get("error", {}).get("code") == -32601, f"an unknown method is -32601: {reply}")
    mcp.close()


def over_cli(daemon):
    for arguments, code in ((("submit", "x", "--effort", "extreme"), 2), (("nonsense",), 2), (("submit",), 2),
                            (("show", "../x"), 4), (("submit", "x", "--max-answer-tokens", "-4"), 2),
                            (("submit", "w " * 3000), 2), (("submit", "x", "--file", "/nowhere"), 2)):
        done = cli(daemon.home, *arguments, stdin="")
        check(done.returncode == code and done.stderr.strip() and not done.stdout,
              f"ponder {arguments[0]}: exit {done.returncode} wanted {code}, {done.stderr[:100]!r}")
        done = cli(daemon.home, *arguments, "--json", stdin="")
        if arguments != ("nonsense",):
            try:
                document = json.loads(done.stdout)
                check(done.returncode == code and document["schema_version"] == 1 and document["error"]["message"],
                      f"ponder {arguments[0]} --json: {done.stdout[:200]}")
            except (ValueError, KeyError) as error:
                check(False, f"ponder {arguments[0]} --json prints one error document: {error} {done.stdout[:200]!r}")


def bad_models():
    """A model file that is no model: the daemon serves and says so; a good one works afterwards."""
    good = (ROOT / "models/pebble/pebble-q4_k_m.gguf").read_bytes()
    for name, data in (("cut", good[: len(good) // 2]), ("empty", b""), ("text", b"hello" * 100),
                       ("lying", good[:8] + b"\xff" * 8 + good[16:])):
        with Daemon("--model", "") as daemon:
            model = daemon.home / f"{name}.gguf"
            model.write_bytes(data)
            daemon.arguments = ["--model", str(model)]
            daemon.start(wait_ready=False)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and daemon.try_health().get("state") != "failed":
                time.sleep(0.05)
            health = daemon.try_health()
            check(health.get("state") == "failed" and len(health.get("reason") or "") > 20,
                  f"a {name} model: /health says failed and why, got {health.get('state')} {health.get('reason')}")
            check(daemon.call("GET", "/health").status == 503, f"a {name} model: /health is 503")
            daemon.stop()
            model.write_bytes(good)
            daemon.start()
            job = daemon.submit("say yes", effort="none", max_answer_tokens=4).json
            job = daemon.wait_terminal(job["job_id"])
            check((job["tokens"]["answer"] or 0) > 0 and job["error"] is None,
                  f"a good model where a {name} one was: {job['state']} {job['tokens']} {job['error']}")


main()
