"""The daemon's outside names, held from outside: every field, status code, header and file mode that
clients may rely on, on the scripted engine.  contract_http_test.py BIN_DIR [NAME...]"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time

from harness import BIN, TERMINAL, Daemon, UnixConnection, breaches, check, finish, free_port, wait_until

ENVELOPE = """job_id state reason phase waiting_for label workspace created_at started_at ended_at queue_s run_s
effort_requested effort effort_by tokens cache ttft_s prefill_tokens_per_s tokens_per_s drafted accepted answer
reasoning_chars total_chars next_offset truncated forced_answer position eta_s energy_j model model_class device
degraded build parent_id attempt pinned note error next""".split()
INNER = {"tokens": {"prompt", "cached", "reasoning", "answer", "reserved"},
         "cache": {"path", "miss_reason", "diverged_at"}, "eta_s": {"p50", "p90"}, "next": {"mcp", "shell"}}
ERROR = {"type", "code", "message", "param", "hint", "job_id"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
WINDOW = 4096


def same(got, wanted, what):
    return check(got == wanted, f"{what}: {wanted!r}, got {got!r}")


def stub(**fields):
    return "[[stub " + " ".join(f"{k}={v}" for k, v in fields.items()) + "]]"


def is_error(reply, status, code, what, param=None):
    body = reply.json or {}
    error = body.get("error", {})
    same(reply.status, status, what)
    same(set(body), {"error"}, f"{what}: the body has one member")
    check(ERROR <= set(error), f"{what}: the error has {ERROR - set(error)}")
    same(error.get("code"), code, f"{what}: code")
    check(isinstance(error.get("type"), str) and error.get("message"), f"{what}: type and message")
    if param:
        same(error.get("param"), param, f"{what}: param")
    return error


def is_envelope(job, what):
    check(set(ENVELOPE) <= set(job), f"{what}: the envelope has {set(ENVELOPE) - set(job)}")
    for field, names in INNER.items():
        check(isinstance(job.get(field), dict) and names <= set(job[field]), f"{what}: {field} is {job.get(field)}")
    for field in ("created_at", "started_at", "ended_at"):
        check(job[field] is None or TIME.fullmatch(job[field]), f"{what}: {field} is {job[field]}")
    for field in ("queue_s", "run_s", "ttft_s"):
        check(job[field] is None or 0 <= job[field] < 3600, f"{what}: {field} is {job[field]}")
    check(re.fullmatch("[a-z0-9]{26}", job["job_id"]), f"{what}: job_id")
    check((job["state"] == "queued") == (job["position"] is not None), f"{what}: position {job['position']}")
    check((job["state"] == "queued") == (job["waiting_for"] is not None), f"{what}: waiting_for")
    check((job["state"] in TERMINAL) == (job["ended_at"] is not None), f"{what}: ended_at")
    check(job["error"] is None or {"code", "message", "hint"} <= set(job["error"]), f"{what}: error {job['error']}")
    if job["next"]["mcp"] is not None:
        check({"tool", "arguments"} <= set(job["next"]["mcp"]), f"{what}: next.mcp")
    return job


@contextlib.contextmanager
def daemon(*arguments, settings="", wait_ready=True):
    d = Daemon("--engine", "stub", "--ctx", str(WINDOW), *arguments)
    (d.home / "ponder.toml").write_text(settings)
    with d:
        yield d.start(wait_ready)


def stored_bytes(d, job):
    """How much of a job's text the database holds."""
    with contextlib.closing(sqlite3.connect(f"file:{d.home}/ponder.db?mode=ro", uri=True, timeout=20)) as db:
        return db.execute("select coalesce(sum(length(text)), 0) from chunk join job on chunk.job = job.seq "
                          "where id = ?", (job,)).fetchone()[0]


class Sse:
    """Reads server-sent events over the Unix socket: (id, event, data) one by one."""

    def __init__(self, path, method, target, body=None, headers=None):
        self.connection = UnixConnection(path, 30)
        data = json.dumps(body).encode() if body is not None else None
        self.connection.request(method, target, data, {**({"Content-Type": "application/json"} if data else {}),
                                                       **(headers or {})})
        self.reply = self.connection.getresponse()
        self.status = self.reply.status

    def __iter__(self):
        event = {}
        for raw in self.reply:
            line = raw.decode().rstrip("\n")
            if not line:
                if event:
                    yield event.get("id"), event.get("event"), event.get("data")
                event = {}
            elif not line.startswith(":"):
                key, _, value = line.partition(": ")
                event[key] = value

    def close(self):
        self.connection.sock and self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def raw(path, text, seconds=5):
    """What comes back for these bytes, up to the end of the connection or half a second of silence."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(seconds)
        s.connect(str(path))
        s.sendall(text)
        got = b""
        with contextlib.suppress(socket.timeout):
            while part := s.recv(65536):
                got += part
                s.settimeout(0.3)
        return got


# --- jobs ----------------------------------------------------------------------------------------

def envelopes():
    with daemon() as d:
        made = d.submit(stub(tokens=3, think=2), label="a label", workspace="/w", effort="high")
        same(made.status, 201, "a submit")
        job = is_envelope(made.json, "the submit's answer")
        same(made.headers.get("Location"), f"/v1/jobs/{job['job_id']}", "Location")
        same((job["state"], job["position"], job["waiting_for"]), ("queued", 1, "turn"), "as submitted")
        same((job["label"], job["workspace"]), ("a label", "/w"), "label and workspace")
        check(isinstance(job["tokens"]["prompt"], int) and job["tokens"]["reserved"] > 0, "counted before it is told")
        same(job["answer"], None, "no answer yet")
        done = is_envelope(d.wait_terminal(job["job_id"]), "a finished job")
        text = d.call("GET", f"/v1/jobs/{job['job_id']}/result").json
        same((done["state"], done["reason"], done["phase"]), ("completed", None, None), "how it ended")
        same((done["answer"], done["truncated"], done["next_offset"]), (text["text"], False, None), "the answer")
        same(done["total_chars"], len(text["text"]), "total_chars")
        same((done["tokens"]["reasoning"], done["tokens"]["answer"], done["tokens"]["cached"]), (2, 3, 0), "tokens")
        same((done["effort_requested"], done["effort"], done["effort_by"]), ("high", "medium", "template"), "effort")
        same((done["model"], done["model_class"], done["device"]), ("stub", "user", "cpu"), "model")
        same((done["attempt"], done["pinned"], done["forced_answer"]), (1, False, False), "attempt, pinned, forced")
        check(done["reasoning_chars"] > 0 and done["build"] and done["run_s"] is not None, "reasoning, build, run_s")
        same(done["next"], {"mcp": {"tool": "result", "arguments": {"job_id": job["job_id"]}},
                            "shell": f"ponder result {job['job_id']}"}, "next")
        same(done["cache"]["path"], "cold", "cache.path")

        for word, used in {"none": "none", "low": "low", "xhigh": "xhigh", "max": "xhigh", "minimal": "low",
                           "medium": "medium"}.items():
            same(d.submit("effort " + word, effort=word).json["effort"], used, f"effort {word}")
        number = d.submit("effort 77", effort=77).json
        same((number["effort"], number["effort_by"]), ("77", "budget"), "a number as effort")
        same(d.submit("no effort").json["effort"], "xhigh", "the default of a submit")
        same(d.submit("no effort", kind="ask").json["effort"], "medium", "the default of an ask")
        error = is_error(d.submit("x", effort="huge"), 400, "bad_request", "an unknown effort", "effort")
        check(all(w in error["message"] for w in ("none", "low", "medium", "xhigh")), "it lists the words")

        long = d.submit(stub(tokens=2600, rate=1e6, text="é" * 7), effort="none").json["job_id"]
        done = d.wait_terminal(long)
        same((done["state"], done["answer"], done["truncated"], done["next_offset"]), ("completed", None, True, 0),
             "an answer over 16,384 characters")
        same(done["total_chars"], 2600 * 8 - 1, "code points, not bytes")

        slow = d.submit(stub(tokens=500, rate=50, think=3, prefill_s=0.4)).json["job_id"]
        phases = set()

        def seen():
            job = is_envelope(d.job(slow), "a running job")
            phases.add(job["phase"])
            if job["phase"] == "prefill" and job["prefill_total"]:
                phases.add("counted prefill")
            return job["phase"] == "answering"
        wait_until(seen, 10, "it answers")
        check({"prefill", "counted prefill", "thinking", "answering"} <= phases, f"phases {phases}")
        queued = [d.submit(f"waits {i}").json["job_id"] for i in range(3)]
        same([d.job(i)["position"] for i in queued], [1, 2, 3], "positions begin at 1")
        before = time.monotonic()
        d.job(slow, wait_s=0.3)
        check(0.25 < time.monotonic() - before < 3, "wait_s is a bound")
        d.call("POST", f"/v1/jobs/{slow}/cancel")


def submits():
    with daemon() as d:
        for body, param in [({}, "task"), ({"task": "a", "messages": [{"role": "user", "content": "b"}]}, "task"),
                            ({"task": 5}, "task"), ({"messages": []}, "messages"), ({"task": "a", "kind": "no"}, "kind"),
                            ({"task": "a", "files": [{"name": "x"}]}, "files"),
                            ({"task": "a", "on_limit": "wait"}, "on_limit"), ({"task": "a", "mode": "x"}, "mode"),
                            ({"task": "a", "deadline_s": -1}, "deadline_s"), ({"task": "a", "schema": 5}, "schema"),
                            ({"task": "a", "temperature": "hot"}, "temperature"), ({"task": "a", "pin": 1}, "pin"),
                            ({"task": "a", "max_answer_tokens": 0}, "max_answer_tokens"),
                            ({"task": "a", "max_reasoning_tokens": -1}, "max_reasoning_tokens"),
                            ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
                             "messages[0].content[0]")]:
            is_error(d.call("POST", "/v1/jobs", body), 400, "bad_request", f"submit {body}", param)
        is_error(d.call("POST", "/v1/jobs", raw=b"[1]"), 400, "bad_request", "a body that is no object")
        is_error(d.call("POST", "/v1/jobs", raw=b"{"), 400, "bad_request", "a body that is no JSON")
        same(d.submit("unknown fields", colour="red").status, 201, "unknown fields are ignored")
        rich = d.call("POST", "/v1/jobs", {"messages": [{"role": "system", "content": "S"}, {"role": "user",
                      "content": [{"type": "text", "text": "parts"}]}], "context": "C", "temperature": 0.1, "seed": 4,
                      "files": [{"name": "f", "text": "t"}], "stop": ["x"], "top_k": 3, "pin": True})
        same((rich.status, rich.json["pinned"]), (201, True), "messages, context, files, sampling, pin")

        blocker = d.submit(stub(tokens=900, rate=50)).json["job_id"]
        first = d.submit("keyed", idempotency_key="k1", label="l")
        again = d.submit("keyed", idempotency_key="k1", label="l")
        same((first.status, again.status), (201, 200), "the same key and body")
        same(again.json["job_id"], first.json["job_id"], "the same job")
        check(again.json["note"], "with a note")
        same("Location" in again.headers, False, "Location only for a new job")
        error = is_error(d.submit("other", idempotency_key="k1"), 409, "idempotency_mismatch", "another body")
        same(error["job_id"], first.json["job_id"], "the mismatch names the job")
        one = d.submit("twin", workspace="/w")
        two = d.submit("twin", workspace="/w")
        same((two.status, two.json["job_id"]), (200, one.json["job_id"]), "a live twin")
        check(two.json["note"], "a twin has a note")
        check(d.submit("twin", workspace="/v").json["job_id"] != one.json["job_id"], "another workspace, another job")
        forced = d.submit("twin", workspace="/w", force_new=True)
        check(forced.status == 201 and forced.json["job_id"] != one.json["job_id"], "force_new")
        for i in (blocker, one.json["job_id"], forced.json["job_id"]):
            d.call("POST", f"/v1/jobs/{i}/cancel")
        late = d.submit("twin", workspace="/w")
        check(late.status == 201, "an ended twin does not count")
        d.wait_terminal(first.json["job_id"])
        again = d.submit("keyed", idempotency_key="k1", label="l")
        same((again.status, again.json["job_id"]), (200, first.json["job_id"]), "a key outlives its job's end")

        for mode in ("resume", "answer_now"):
            body = {"continue_from": first.json["job_id"], "mode": mode}
            error = is_error(d.call("POST", "/v1/jobs", body), 400, "bad_request", f"of a completed job: {body}", "mode")
            check("completed" in error["message"] and error["hint"], "it says so and what to do")
            is_error(d.call("POST", "/v1/jobs", {"mode": mode}), 400, "bad_request", f"{mode} of nothing", "continue_from")
            is_error(d.call("POST", "/v1/jobs", {"mode": mode, "continue_from": "a" * 26}), 404, "job_unknown",
                     f"{mode} of an unknown job")
        cut = d.submit(stub(think=60, tokens=9), max_reasoning_tokens=8).json["job_id"]
        same(d.wait_terminal(cut)["reason"], "reasoning_exhausted", "a job to go on from")
        for mode, forced in (("resume", False), ("answer_now", True)):
            child = d.call("POST", "/v1/jobs", {"mode": mode, "continue_from": cut, "task": "is not used"})
            same((child.status, child.json["parent_id"]), (201, cut), mode)
            check("task" in child.json["note"], "what is not used is named")
            child = d.wait_terminal(child.json["job_id"])
            same((child["state"], bool(child["forced_answer"])), ("completed", forced), mode)
            check(d.text(child["job_id"], "reasoning").startswith(d.text(cut, "reasoning")), f"{mode} has its parent's text")
        limited = d.submit(stub(think=60, tokens=9) + "b", max_reasoning_tokens=8, on_limit="answer").json["job_id"]
        same((d.wait_terminal(limited)["state"], d.job(limited)["forced_answer"]), ("completed", True), "on_limit answer")
        slow = d.submit(stub(think=900, rate=50), deadline_s=0.5, on_limit="answer").json["job_id"]
        same((d.wait_terminal(slow)["state"], d.job(slow)["forced_answer"]), ("completed", True), "and at the deadline")
        going_on = d.submit("and then?", continue_from=first.json["job_id"])
        same((going_on.status, going_on.json["parent_id"]), (201, first.json["job_id"]), "follow_up")
        parent = d.wait_terminal(first.json["job_id"])
        check(going_on.json["tokens"]["prompt"] > parent["tokens"]["prompt"], "it reads its parent")
        quiet = d.submit("parent at low", effort="low").json["job_id"]
        d.wait_terminal(quiet)
        same(d.submit("child", continue_from=quiet).json["effort"], "low", "effort is inherited")
        same(d.submit("child", continue_from=quiet, effort="none").json["effort"], "none", "unless one is given")
        is_error(d.submit("x", continue_from="a" * 26), 404, "job_unknown", "an unknown parent")
        running = d.submit(stub(tokens=900, rate=50)).json["job_id"]
        is_error(d.submit("x", continue_from=running), 409, "not_terminal", "a parent that runs")

    with daemon(settings="max_queued = 2\n") as d:
        running = d.submit(stub(tokens=900, rate=20)).json["job_id"]
        wait_until(lambda: d.job(running)["state"] == "running", 10, "the first runs")
        same([d.submit(f"q{i}").status for i in range(2)], [201, 201], "two fit")
        full = d.submit("q3")
        is_error(full, 429, "queue_full", "a full queue")
        check(int(full.headers.get("Retry-After", 0)) > 0, "Retry-After")
        same(d.submit("q1").status, 200, "a twin is found in a full queue")


def budgets():
    with daemon() as d:
        def prompt_of(task, **fields):
            return d.submit(task, force_new=True, **fields).json["tokens"]
        p = prompt_of("count me")["prompt"]
        left = WINDOW - p
        for fields, reserved in [({"max_reasoning_tokens": 100, "max_answer_tokens": 50}, 150),
                                 ({"max_answer_tokens": left, "effort": "none"}, left),
                                 ({"max_answer_tokens": left - 10, "max_reasoning_tokens": 10}, left),
                                 ({"max_tokens": 7}, 7), ({"max_tokens": 10**6}, left), ({}, left),
                                 ({"kind": "ask"}, left), ({"effort": "low"}, left)]:
            same(prompt_of("count me", **fields)["reserved"], reserved, f"reserved with {fields}")
        for fields in ({"max_answer_tokens": left + 1}, {"max_reasoning_tokens": left + 1},
                       {"max_answer_tokens": left, "max_reasoning_tokens": 1}):
            error = is_error(d.submit("count me", **fields), 400, "context_length_exceeded", f"over by one: {fields}")
            same((error.get("n_prompt_tokens"), error.get("n_reserved"), error.get("n_ctx")),
                 (p, sum(fields.values()), WINDOW), "the numbers")
        # T40, ollama#4967: window - 1, window and one more; nothing is cut.
        chars = 4 * (WINDOW - p)
        body = "count me" + "x" * chars
        most = prompt_of("count me" + "x" * (chars - 16))["prompt"]
        check(most < WINDOW, "a prompt near the window is taken")
        fill = "count me" + "x" * (chars - 16 + 4 * (WINDOW - 1 - most))
        same(prompt_of(fill)["prompt"], WINDOW - 1, "window - 1 tokens fit")
        error = is_error(d.submit(fill + "xxxx"), 400, "context_length_exceeded", "window tokens do not")
        same((error["n_prompt_tokens"], error["n_reserved"]), (WINDOW, 1), "the reserve is at least one")
        chat = d.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": body * 2}]})
        is_error(chat, 400, "context_length_exceeded", "the chat door")
        chat = d.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": stub(tokens=3)}],
                                                       "max_tokens": 10**7})
        same(chat.status, 200, "max_tokens of a chat is lowered, never refused")

        def ending(text, **fields):
            job = is_envelope(d.wait_terminal(d.submit(text, **fields).json["job_id"]), text)
            return job
        # T27, Arthur-Ficial/apfel#412: an answer that hit its limit was reported as completed.
        cut = ending(stub(tokens=50, rate=1000), effort="none", max_answer_tokens=8)
        same((cut["state"], cut["reason"], cut["tokens"]["answer"], cut["answer"]),
             ("incomplete", "output_limit", 8, None), "a spent answer budget")
        same((cut["truncated"], cut["next"]["mcp"]["arguments"].get("part")), (True, "partial"), "a cut answer")
        is_error(d.call("GET", f"/v1/jobs/{cut['job_id']}/result"), 409, "not_completed", "its answer")
        page = d.call("GET", f"/v1/jobs/{cut['job_id']}/result?part=partial").json
        same(len(page["text"].split()), 8, "its partial text")
        # T28, kekzl/imp#1442: a budget spent on thinking gave an empty success.
        mute = ending(stub(think=50, rate=1000), max_reasoning_tokens=9)
        same((mute["state"], mute["reason"], mute["tokens"]["reasoning"]),
             ("incomplete", "reasoning_exhausted", 9), "a spent reasoning budget")
        late = ending(stub(tokens=1000, rate=20), deadline_s=0.3)
        same((late["state"], late["reason"]), ("incomplete", "deadline"), "a deadline")
        check(0.25 < late["run_s"] < 3, f"run_s {late['run_s']}")
        whole = ending(stub(tokens=10**6, rate=1e6), effort="none")
        same((whole["state"], whole["reason"], whole["tokens"]["answer"]),
             ("incomplete", "output_limit", WINDOW - whole["tokens"]["prompt"]), "a full window")
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        same(ending(stub(tokens=1, text='{"a":1}'), schema=schema)["state"], "completed", "an answer that fits")
        same(ending(stub(tokens=1, text='{"b":1}'), schema=schema)["reason"], "schema_invalid", "one that does not")
        for fields in ({"kind": "ask"}, {"effort": "low"}, {}):
            job = ending(stub(think=10**6, rate=1e6), **fields)
            left = WINDOW - job["tokens"]["prompt"]
            same((job["reason"], job["tokens"]["reasoning"]), ("reasoning_exhausted", left - min(8192, left // 4)),
                 f"thinking leaves an answer reserve with {fields}")
        job = ending(stub(think=10**6, rate=1e6), effort=77)
        same((job["reason"], job["tokens"]["reasoning"]), ("reasoning_exhausted", 77), "a number as effort")
        same(ending(stub(fault="endless_thinking", rate=1e6), effort="low", max_reasoning_tokens=20)["reason"],
             "reasoning_exhausted", "endless thinking")
        # T30, vllm-mlx#723: a loop ends as what it is.
        same(ending(stub(fault="loop", after=3, rate=1e5))["reason"], "repetition", "a loop")
        same(ending(stub(fault="exit0", after=3))["reason"], "stream_lost", "exit 0")
        oom = ending(stub(fault="out_of_memory", after=3))
        same((oom["state"], oom["reason"], oom["error"]["code"]), ("failed", "out_of_memory", "out_of_memory"), "oom")
        whole = ending(stub(fault="invalid_utf8", tokens=8, after=3))
        same(whole["state"], "completed", "bad bytes from the model")


def listing():
    with daemon() as d:
        ids = [d.submit(f"job {i}", workspace=f"/w{i % 2}", label=f"l{i % 3}").json["job_id"] for i in range(6)]
        same(sorted(ids), ids, "ids sort by creation")
        for i in ids:
            d.wait_terminal(i)
        page = d.call("GET", "/v1/jobs").json
        same(set(page), {"jobs", "next_before"}, "a list")
        same([j["job_id"] for j in page["jobs"]], ids[::-1], "newest first")
        same(page["next_before"], None, "nothing older")
        for job in page["jobs"]:
            same(is_envelope(job, "a listed job")["answer"], None, "no texts in a list")

        def listed(query):
            return [j["job_id"] for j in d.call("GET", "/v1/jobs?" + query).json["jobs"]]
        same(listed("workspace=/w1"), [ids[5], ids[3], ids[1]], "by workspace")
        same(listed("label=l2"), [ids[5], ids[2]], "by label")
        same(listed("state=completed&workspace=%2Fw0&label=l0"), [ids[0]], "by all three")
        same(listed("state=queued"), [], "by state")
        same(listed("limit=100000"), ids[::-1], "a limit above the greatest page is lowered")
        page = d.call("GET", "/v1/jobs?limit=4").json
        same((len(page["jobs"]), page["next_before"]), (4, ids[2]), "a page")
        page = d.call("GET", f"/v1/jobs?limit=4&before={ids[2]}").json
        same(([j["job_id"] for j in page["jobs"]], page["next_before"]), (ids[1::-1], None), "the next page")
        for query, param in [("state=done", "state"), ("limit=0", "limit"), ("limit=x", "limit"), ("before=1", "before")]:
            is_error(d.call("GET", "/v1/jobs?" + query), 400, "bad_request", query, param)

        job = d.submit(stub(tokens=5, text="aé😀"), effort="none").json["job_id"]
        d.wait_terminal(job)
        whole = "aé😀 aé😀 aé😀 aé😀 aé😀"
        page = d.call("GET", f"/v1/jobs/{job}/result").json
        same(page, {"job_id": job, "state": "completed", "part": "answer", "offset": 0, "next_offset": None,
                    "total_chars": len(whole), "truncated": False, "text": whole}, "a result")
        got, offset = "", 0
        while offset is not None:
            page = d.call("GET", f"/v1/jobs/{job}/result?offset={offset}&limit=7").json
            same(page["truncated"], page["next_offset"] is not None, "truncated and next_offset")
            check(len(page["text"]) <= 7 and page["offset"] == offset, "a page of 7 code points")
            got, offset = got + page["text"], page["next_offset"]
        same(got, whole, "the pages together")
        past = d.call("GET", f"/v1/jobs/{job}/result?offset=1000").json
        same((past["text"], past["next_offset"], past["truncated"]), ("", None, False), "past the end")
        same(d.call("GET", f"/v1/jobs/{job}/result?part=partial").json["text"], whole, "partial of a whole answer")
        same(d.call("GET", f"/v1/jobs/{job}/result?part=reasoning").json["text"], "", "no reasoning")
        asked = d.submit("the task", context="C", seed=77, files=[{"name": "f", "text": "t"}]).json["job_id"]
        page = d.call("GET", f"/v1/jobs/{asked}/result?part=request").json
        same((page["part"], page["seed"]), ("request", 77), "what was asked, and the seed")
        check(page["text"].startswith("<context>\nC") and page["text"].endswith("the task"), f"all of it: {page}")
        same("seed" in d.call("GET", f"/v1/jobs/{job}/result").json, False, "other parts have no seed")
        for query, param in [("part=all", "part"), ("offset=-1", "offset"), ("limit=-1", "limit"), ("limit=x", "limit")]:
            is_error(d.call("GET", f"/v1/jobs/{job}/result?{query}"), 400, "bad_request", query, param)

        unknown = "0" * 26
        for method, target in [("GET", ""), ("GET", "/result"), ("GET", "/events"), ("POST", "/cancel"), ("DELETE", "")]:
            is_error(d.call(method, f"/v1/jobs/{unknown}{target}"), 404, "job_unknown", f"{method} {target}")
        is_error(d.call("POST", f"/v1/jobs/{unknown}/pin", {"pinned": True}), 404, "job_unknown", "pin")
        is_error(d.call("GET", "/v1/jobs/nonsense"), 404, "job_unknown", "what is no id")

        slow = d.submit(stub(tokens=2000, rate=20)).json["job_id"]
        wait_until(lambda: d.job(slow)["total_chars"], 10, "it writes")
        error = is_error(d.call("DELETE", f"/v1/jobs/{slow}"), 409, "not_terminal", "DELETE of a running job")
        same(error["job_id"], slow, "its id")
        is_error(d.call("GET", f"/v1/jobs/{slow}/result"), 409, "not_completed", "the answer of a running job")
        page = d.call("GET", f"/v1/jobs/{slow}/result?part=partial").json
        same((page["state"], bool(page["text"])), ("running", True), "partial of a running job")
        first = d.call("POST", f"/v1/jobs/{slow}/cancel")
        again = d.call("POST", f"/v1/jobs/{slow}/cancel")
        same((first.status, first.json["state"]), (200, "cancelled"), "cancel")
        same(again.json, first.json, "cancel again")
        is_envelope(first.json, "a cancelled job")
        check(d.call("GET", f"/v1/jobs/{slow}/result?part=partial").json["text"], "its partial text")
        ended = d.call("POST", f"/v1/jobs/{job}/cancel")
        same((ended.status, ended.json["state"]), (200, "completed"), "cancel of an ended job")
        blocker = d.submit(stub(tokens=2000, rate=20)).json["job_id"]
        waits = d.submit("waits").json["job_id"]
        same(d.call("POST", f"/v1/jobs/{waits}/cancel").json["state"], "cancelled", "cancel of a queued job")
        d.call("POST", f"/v1/jobs/{blocker}/cancel")
        gone = d.call("DELETE", f"/v1/jobs/{slow}")
        same((gone.status, gone.body), (204, b""), "DELETE")
        is_error(d.call("DELETE", f"/v1/jobs/{slow}"), 404, "job_unknown", "DELETE again")
        same(d.call("POST", f"/v1/jobs/{job}/pin", {"pinned": True}).json["pinned"], True, "pin")
        same(d.job(job)["pinned"], True, "pinned")
        same(d.call("POST", f"/v1/jobs/{job}/pin", {"pinned": False}).json["pinned"], False, "unpin")
        is_error(d.call("POST", f"/v1/jobs/{job}/pin", {}), 400, "bad_request", "pin without pinned", "pinned")
        is_error(d.call("POST", f"/v1/jobs/{job}/pin", {"pinned": "yes"}), 400, "bad_request", "pinned", "pinned")


def retention():
    with daemon(settings="keep_read = 2\n") as d:
        ids = []
        for i in range(5):
            ids.append(d.submit(f"r{i}", label=f"r{i}", pin=i == 0).json["job_id"])
            d.wait_terminal(ids[-1])
        for i in ids[:4]:
            d.call("GET", f"/v1/jobs/{i}/result")
        wait_until(lambda: d.job(ids[1])["state"] == "expired", 10, "the oldest read result goes")
        same([d.job(i)["state"] for i in ids], ["completed", "expired", "completed", "completed", "completed"],
             "pinned, read and unread")
        reply = d.call("GET", f"/v1/jobs/{ids[1]}")
        same(reply.status, 200, "an expired job")
        job = is_envelope(reply.json, "an expired job")
        check("r1" in job["note"] and "completed" in job["note"], f"its summary {job['note']}")
        same(job["answer"], None, "its answer")
        is_error(d.call("GET", f"/v1/jobs/{ids[1]}/result"), 410, "gone", "its result")
        same(d.call("POST", f"/v1/jobs/{ids[1]}/cancel").json["state"], "expired", "its cancel")
        same(d.call("DELETE", f"/v1/jobs/{ids[1]}").status, 204, "its DELETE")


def events():
    with daemon() as d:
        job = d.submit(stub(tokens=30, think=10, rate=100)).json["job_id"]
        stream = Sse(d.socket, "GET", f"/v1/jobs/{job}/events?after=0")
        same(stream.status, 200, "events")
        same(stream.reply.getheader("Content-Type").split(";")[0], "text/event-stream", "their type")
        seen = list(stream)
        numbers = [int(n) for n, _, _ in seen]
        check(numbers == sorted(numbers), f"ids grow: {numbers}")
        check(len(set(numbers)) == len(numbers), f"ids are used once: {numbers}")
        kinds = [k for _, k, _ in seen]
        check(set(kinds) <= {"state", "progress", "reasoning", "answer", "end"}, f"kinds {set(kinds)}")
        check({"state", "reasoning", "answer"} <= set(kinds) and kinds[-1] == "end", "what comes")
        final = is_envelope(json.loads(seen[-1][2]), "the end event")
        same(final["state"], "completed", "the end")

        def text(all_events, kind):
            return "".join(json.loads(data)["text"] for _, k, data in all_events if k == kind)
        same(text(seen, "answer"), final["answer"], "the answer's events together")
        same(text(seen, "reasoning"), d.text(job, "reasoning"), "the reasoning's events together")
        for name, target, headers in [("after", f"?after={numbers[len(numbers) // 2]}", {}),
                                      ("Last-Event-ID", "", {"Last-Event-ID": str(numbers[len(numbers) // 2])})]:
            rest = list(Sse(d.socket, "GET", f"/v1/jobs/{job}/events{target}", headers=headers))
            split = next((i for i, n in enumerate(numbers) if n > numbers[len(numbers) // 2]), None)
            same(text(rest, "answer"), text(seen[split:], "answer"), f"{name} goes on without a gap")
            same(rest[-1][1], "end", f"{name} ends")
        slow = d.submit(stub(tokens=3000, rate=30)).json["job_id"]
        stream = Sse(d.socket, "GET", f"/v1/jobs/{slow}/events")
        rest = iter(stream)
        while next(rest)[1] != "reasoning":
            pass
        d.call("POST", f"/v1/jobs/{slow}/cancel")
        last = list(rest)[-1]
        same((last[1], json.loads(last[2])["state"]), ("end", "cancelled"), "the stream of a cancelled job")
        is_error(d.call("GET", f"/v1/jobs/{job}/events?after=x"), 400, "bad_request", "after=x", "after")
        same(d.call("GET", f"/v1/jobs/{job}/events", headers={"Last-Event-ID": "x"}).status, 400, "a bad Last-Event-ID")


def lanes():
    with daemon() as d:
        running = d.submit(stub(tokens=3000, rate=30)).json["job_id"]
        wait_until(lambda: d.job(running)["state"] == "running", 10, "the first batch job runs")
        batch = d.submit("second batch").json["job_id"]
        quick = d.submit("a question", kind="ask").json["job_id"]
        same(d.wait_terminal(quick)["state"], "completed", "an ask does not wait for batch jobs")
        same(d.job(batch)["state"], "queued", "one batch job at a time")
        asks = [d.submit(stub(tokens=3000, rate=30, text=f"a{i}"), kind="ask").json["job_id"] for i in range(3)]
        wait_until(lambda: d.job(asks[1])["state"] == "running", 10, "two asks run")
        same([d.job(a)["state"] for a in asks], ["running", "running", "queued"], "two interactive at a time")
        same((d.job(asks[2])["position"], d.job(batch)["position"]), (1, 2), "an ask stands before a batch job")
        queue = d.call("GET", "/health").json["queue"]
        same((queue["running"], queue["ask"], queue["batch"]), (3, 1, 1), "health counts them")


def lives():
    """What becomes of an ask, a told ask and a batch job."""
    for ending in ("SIGTERM", "SIGKILL"):
        with daemon(settings="max_running_interactive = 2\n") as d:
            made = {}
            for name in ("ask", "told", "batch"):  # nobody waits for the end of the ask
                kind, tokens = "batch" if name == "batch" else "ask", 6000 if name == "ask" else 240
                made[name] = d.submit(stub(tokens=tokens, rate=60, text=name), kind=kind).json["job_id"]
            wait_until(lambda: all(d.job(i)["total_chars"] for i in made.values()), 10, "all three write")
            d.job(made["told"], wait_s=0.2)
            wait_until(lambda: all(stored_bytes(d, i) for i in made.values()), 10, "what they wrote is on the disk")
            if ending == "SIGTERM":
                same(d.stop(), 0, "a clean stop exits 0")
                check(not d.socket.exists(), "the socket is gone after a clean stop")
            else:
                d.kill()
            d.start()
            same(d.job(made["ask"])["state"], "interrupted", f"{ending}: an ask")
            check(d.text(made["ask"]), f"{ending}: its partial is kept")
            for name in ("told", "batch"):
                done = is_envelope(d.wait_terminal(made[name]), name)
                same((done["state"], done["answer"]), ("completed", " ".join([name] * 240)), f"{ending}: {name}")
                same(done["attempt"], 1, f"{ending} burns no attempt of {name}")


def deaths():
    with daemon(settings="stall_s = 1\n") as d:
        poison = is_envelope(d.wait_terminal(d.submit(stub(fault="crash", after=3)).json["job_id"]), "poison")
        same((poison["state"], poison["reason"], poison["attempt"]), ("failed", "poison", 3), "three worker deaths")
        check(poison["error"]["code"] and poison["error"]["message"], "its error")
        same(d.wait_terminal(d.submit("after it").json["job_id"])["state"], "completed", "the next job")
        beside = d.submit(stub(tokens=60, rate=60), kind="ask").json["job_id"]
        wait_until(lambda: d.job(beside)["total_chars"], 10, "an ask writes")
        poison = d.submit(stub(fault="crash", after=3), force_new=True).json["job_id"]
        same([d.wait_terminal(i)["reason"] for i in (beside, poison)], [None, "poison"], "only the killer is poison")
        check(d.call("GET", "/health").json["engine"]["restarts"] >= 3, "health counts the restarts")
        check(d.call("GET", "/health").json["engine"]["last_error"], "health tells the last error")
        hung = d.wait_terminal(d.submit(stub(fault="hang", after=3)).json["job_id"])
        same((hung["state"], hung["reason"]), ("incomplete", "stalled"), "no token for stall_s")
        same(d.wait_terminal(d.submit("after that").json["job_id"])["state"], "completed", "the next job")

        job = d.submit(stub(tokens=60, rate=40)).json["job_id"]
        wait_until(lambda: d.job(job)["total_chars"], 10, "it writes")
        os.kill(d.call("GET", "/health").json["engine"]["pid"], signal.SIGKILL)
        done = d.wait_terminal(job)
        same((done["state"], done["tokens"]["answer"]), ("completed", 60), "a worker killed from outside")
        lost = d.submit(stub(fault="device_lost", after=3, tokens=9)).json["job_id"]
        wait_until(lambda: d.job(lost)["state"] in ("running", "queued"), 10, "it goes on")
        time.sleep(0.5)
        check(d.job(lost)["state"] in ("running", "queued"), f"device lost: {d.job(lost)['state']}")
        d.call("POST", f"/v1/jobs/{lost}/cancel")


# --- the model's door ----------------------------------------------------------------------------

def chat():
    with daemon(settings="stall_s = 1\n") as d:
        def body(text, **fields):
            return {"model": "gpt-anything", "messages": [{"role": "user", "content": text}], **fields}

        def ask(text, **fields):
            return d.call("POST", "/v1/chat/completions", body(text, **fields))
        whole = ask(stub(tokens=4, think=3)).json
        same((whole["object"], whole["model"]), ("chat.completion", "stub"), "the reply")
        check(whole["id"] and isinstance(whole["created"], int), "id and created")
        choice = whole["choices"][0]
        same((choice["index"], choice["finish_reason"], choice["message"]["role"]), (0, "stop", "assistant"), "a choice")
        same(len(choice["message"]["content"].split()), 4, "content")
        same(len(choice["message"]["reasoning_content"].split()), 3, "reasoning_content")
        usage = whole["usage"]
        same((usage["completion_tokens"], usage["total_tokens"]), (7, 7 + usage["prompt_tokens"]), "usage")
        same(usage["prompt_tokens_details"]["cached_tokens"], 0, "cached tokens")
        same(usage["completion_tokens_details"]["reasoning_tokens"], 3, "reasoning tokens")
        same(ask(stub(tokens=50), max_tokens=5).json["choices"][0]["finish_reason"], "length", "output_limit")
        same(ask(stub(think=50), max_reasoning_tokens=5).json["choices"][0]["finish_reason"], "length",
             "reasoning_exhausted")
        stopped = ask(stub(tokens=9, text="stone"), stop=["stone stone s"]).json["choices"][0]
        same((stopped["finish_reason"], stopped["message"]["content"]), ("stop", ""), "a stop string")
        for fault, status, code in [("exit0", 502, "stream_lost"), ("hang", 502, "stream_lost"),
                                    ("crash", 500, "engine_error"), ("loop", 500, "engine_error"),
                                    ("out_of_memory", 500, "engine_error"), ("device_lost", 502, "stream_lost")]:
            is_error(ask(stub(fault=fault, after=2, rate=1e5)), status, code, f"chat with {fault}")

        def chunks(text, **fields):
            stream = Sse(d.socket, "POST", "/v1/chat/completions", body(text, stream=True, **fields))
            check(stream.status == 200, f"a stream is {stream.status}")
            return [data for _, _, data in stream]
        got = chunks(stub(tokens=4, think=3), stream_options={"include_usage": True})
        same(got[-1], "[DONE]", "a stream's end")
        parts = [json.loads(c) for c in got[:-1]]
        same({(p["object"], p["model"], p["id"]) for p in parts}, {("chat.completion.chunk", "stub", parts[0]["id"])},
             "chunks")
        same(parts[-1]["choices"], [], "the usage chunk has no choices")
        same(parts[-1]["usage"]["completion_tokens"], 7, "streamed usage")
        deltas = [p["choices"][0]["delta"] for p in parts if p["choices"]]
        same(deltas[0].get("role"), "assistant", "the role comes first")
        same("".join(x.get("reasoning_content", "") for x in deltas), choice["message"]["reasoning_content"],
             "streamed reasoning")
        same("".join(x.get("content", "") for x in deltas), choice["message"]["content"], "streamed content")
        same([p["choices"][0]["finish_reason"] for p in parts if p["choices"]][-1], "stop", "the last finish_reason")
        check(not any(p.get("usage") for p in map(json.loads, chunks(stub(tokens=2))[:-1])), "usage only when asked")
        cut = chunks(stub(tokens=40), max_tokens=3)
        same((json.loads(cut[-2])["choices"][0]["finish_reason"], cut[-1]), ("length", "[DONE]"), "a cut stream")
        for fault, code in [("exit0", "stream_lost"), ("crash", "engine_error"), ("loop", "engine_error"),
                            ("hang", "stream_lost")]:
            got = chunks(stub(fault=fault, after=2, rate=1e5))
            error = json.loads(got[-1]).get("error", {}) if got[-1] != "[DONE]" else {}
            same(error.get("code"), code, f"a stream with {fault} ends in an error")
            check("[DONE]" not in got, f"and without [DONE] ({fault})")
            check(not any("finish_reason\":\"" in c for c in got), f"and without a finish_reason ({fault})")

        stream = Sse(d.socket, "POST", "/v1/chat/completions", body(stub(tokens=3000, rate=30), stream=True))
        next(iter(stream))
        same(d.call("GET", "/health").json["state"], "busy", "a chat turn makes it busy")
        stream.close()
        wait_until(lambda: d.call("GET", "/health").json["state"] == "ready", 5, "the turn ends with its connection")
        connection = UnixConnection(d.socket, 30)
        connection.request("POST", "/v1/chat/completions", json.dumps(body(stub(tokens=3000, rate=30))),
                           {"Content-Type": "application/json"})
        wait_until(lambda: d.call("GET", "/health").json["queue"]["running"] == 1, 5, "a whole turn runs")
        connection.close()
        wait_until(lambda: d.call("GET", "/health").json["state"] == "ready", 5, "it ends with its connection, too")
        same(d.all_jobs(), [], "chat turns are no job rows")

        def history(arguments):
            return d.call("POST", "/v1/chat/completions", {"messages": [
                {"role": "user", "content": "weather?"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "w", "arguments": arguments}}]},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sun"}]},
                {"role": "user", "content": stub(tokens=2)}],
                "tools": [{"type": "function", "function": {"name": "w", "parameters": {"type": "object"}}}]})
        as_text, as_object = history('{"city": "Oslo"}'), history({"city": "Oslo"})
        same((as_text.status, as_object.status), (200, 200), "tool calls in history")
        same(as_text.json["usage"], as_object.json["usage"], "a string and an object are the same")
        same(as_text.json["choices"][0]["message"]["content"], as_object.json["choices"][0]["message"]["content"],
             "and read the same")
        is_error(history("{broken"), 400, "bad_request", "arguments that are no JSON")

        def thinks(**fields):
            return ask(stub(tokens=2, think=4), **fields).json["usage"]["completion_tokens_details"]["reasoning_tokens"]
        same([thinks(), thinks(reasoning_effort="none"), thinks(chat_template_kwargs={"enable_thinking": False}),
              thinks(reasoning_effort="low", chat_template_kwargs={"enable_thinking": False}),
              thinks(reasoning_effort="none", chat_template_kwargs={"reasoning_effort": "xhigh"}),
              thinks(chat_template_kwargs={"reasoning_effort": "none"}), thinks(reasoning_effort="high")],
             [4, 0, 0, 4, 0, 0, 4], "reasoning_effort wins over chat_template_kwargs")
        is_error(ask("x", reasoning_effort="huge"), 400, "bad_request", "an unknown effort", "reasoning_effort")
        for kind in ("image_url", "input_audio", "file"):
            error = is_error(d.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [
                {"type": "text", "text": "look"}, {"type": kind, kind: {}}]}]}), 400, "bad_request", kind,
                "messages[0].content[1]")
            check(kind in error["message"], f"the part is named: {error['message']}")
        for extra in ({"n": 2}, {"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 21},
                      {"logit_bias": {"x": 1}}, {"response_format": {"type": "grammar"}}):
            is_error(ask("x", **extra), 400, "bad_request", str(extra), next(reversed(extra)))
        told = ask(stub(tokens=2, text="ja"), logprobs=True, top_logprobs=1).json["choices"][0]["logprobs"]["content"]
        same([(t["token"], bytes(t["bytes"]), len(t["top_logprobs"])) for t in told],
             [("ja", b"ja", 1), (" ja", b" ja", 1)], "log-probabilities of the answer's tokens")
        same(ask(stub(tokens=1), user="me", logit_bias=None, service_tier="auto").status, 200, "unknown fields")
        is_error(d.call("POST", "/v1/chat/completions", {"messages": []}), 400, "bad_request", "no messages", "messages")

        stream = Sse(d.socket, "POST", "/v1/chat/completions", body(stub(tokens=3000, rate=30), stream=True))
        got = iter(stream)
        next(got)
        os.kill(d.process.pid, signal.SIGTERM)
        got = [data for _, _, data in got]
        check("error" in json.loads(got[-1]) and "[DONE]" not in got, f"a stop ends a stream with an error: {got[-1]}")
        d.process.wait(20)
        d.start()

        models = d.call("GET", "/v1/models").json
        same((models["object"], [m["id"] for m in models["data"]]), ("list", ["stub"]), "/v1/models")
        model = models["data"][0]
        same((model["object"], model["type"], model["input_modalities"]), ("model", "model", ["text"]), "a model")
        same(d.call("GET", "/v1/models/stub").status, 200, "one model")
        is_error(d.call("GET", "/v1/models/nope"), 404, "not_found", "an unknown model")
        ids = d.call("POST", "/v1/tokenize", {"text": "abcdefgh"}).json
        same((len(ids["tokens"]), ids["count"]), (2, 2), "/v1/tokenize")
        is_error(d.call("POST", "/v1/tokenize", {}), 400, "bad_request", "tokenize of nothing", "text")


def full_of_chats():
    with daemon(settings="max_turns_waiting = 1\n") as d:
        def begin():
            return Sse(d.socket, "POST", "/v1/chat/completions", {
                "messages": [{"role": "user", "content": stub(tokens=3000, rate=30)}], "stream": True})
        streams = []

        def take():
            t = threading.Thread(target=lambda: streams.append(begin()), daemon=True)
            t.start()
        for _ in range(3):
            take()
        wait_until(lambda: d.call("GET", "/health").json["queue"]["ask"] == 1, 10, "one turn waits")
        full = d.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        is_error(full, 429, "queue_full", "one turn too many")
        check(int(full.headers.get("Retry-After", 0)) > 0, "Retry-After")


# --- the server ----------------------------------------------------------------------------------

HEALTH = {"state": None, "reason": None, "degraded": None, "model": {"id", "class", "path", "n_ctx"},
          "engine": {"pid", "device", "restarts", "last_error", "uptime_s"},
          "queue": {"running", "ask", "batch", "limit"}, "store": {"ok", "free_bytes"}, "tcp": None,
          "version": None, "build": None, "uptime_s": None}


def is_health(reply, status, state, what):
    same(reply.status, status, what)
    health = reply.json
    same(health["state"], state, what)
    check(set(HEALTH) <= set(health), f"{what}: health has {set(HEALTH) - set(health)}")
    for field, names in HEALTH.items():
        if names:
            check(names <= set(health[field]), f"{what}: {field} is {health[field]}")
    return health


def tcp_call(port, method, target, headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, target, body, headers or {})
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()


@contextlib.contextmanager
def stand_in_engine(script):
    """A ponderd whose ponder-engine is this shell script."""
    with tempfile.TemporaryDirectory(prefix="ponder-e2e-") as top:
        top = pathlib.Path(top)
        shutil.copy(BIN / "ponderd", top / "ponderd")
        (top / "ponder-engine").write_text(f"#!/bin/sh\n{script}\n")
        (top / "ponder-engine").chmod(0o755)
        with Daemon("--engine", "stub", program=top / "ponderd") as d:
            d.start(wait_ready=False)
            wait_until(d.socket.exists, 10, "the socket is there")
            yield d


def health():
    port = free_port()
    with daemon("--port", str(port)) as d:
        ready = is_health(d.call("GET", "/health"), 200, "ready", "ready")
        same((ready["model"]["id"], ready["model"]["class"], ready["model"]["n_ctx"]), ("stub", "user", WINDOW), "model")
        same((ready["reason"], ready["degraded"], ready["store"]["ok"]), (None, [], True), "nothing is wrong")
        check(ready["engine"]["pid"] > 0 and ready["engine"]["uptime_s"] >= 0, "engine")
        check(ready["version"] and ready["build"] and ready["uptime_s"] >= 0, "version, build, uptime")
        job = d.submit(stub(tokens=2000, rate=20)).json["job_id"]
        wait_until(lambda: d.job(job)["state"] == "running", 10, "a job runs")
        is_health(d.call("GET", "/health"), 200, "busy", "busy")

        key = (d.home / "api-key").read_text().strip()
        status, _, data = tcp_call(port, "GET", "/health")
        same((status, json.loads(data)), (200, {"state": "busy"}), "health without the key")
        for name, headers in [("Bearer", {"Authorization": f"Bearer {key}"}), ("x-api-key", {"x-api-key": key})]:
            status, _, data = tcp_call(port, "GET", "/health", headers)
            check(status == 200 and "queue" in json.loads(data), f"health with {name}")
        paths = [("GET", "/v1/models"), ("GET", "/v1/models/stub"), ("GET", "/v1/jobs"), ("GET", f"/v1/jobs/{job}"),
                 ("GET", f"/v1/jobs/{job}/result"), ("GET", f"/v1/jobs/{job}/events"), ("GET", "/metrics"),
                 ("POST", "/v1/jobs"), ("POST", f"/v1/jobs/{job}/cancel"), ("POST", f"/v1/jobs/{job}/pin"),
                 ("DELETE", f"/v1/jobs/{job}"), ("POST", "/v1/chat/completions"), ("POST", "/v1/tokenize"),
                 ("GET", "/nowhere")]
        for method, path in paths:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-api-key": key + "x"}):
                status, _, data = tcp_call(port, method, path, {**headers, "Content-Type": "application/json"},
                                           b"{}" if method == "POST" else None)
                same(status, 401, f"{method} {path} with {headers}")
                check(json.loads(data)["error"]["code"] == "unauthorized" and ERROR <= set(json.loads(data)["error"]),
                      f"{method} {path}: the body of 401")
        same(d.job(job)["state"], "running", "nothing happened")
        same(tcp_call(port, "GET", "/v1/jobs", {"x-api-key": key})[0], 200, "a path with the key")
        same(tcp_call(port, "GET", "/health", {"Host": "evil.example"})[0], 400, "a foreign Host")
        same(tcp_call(port, "GET", "/health", {"Origin": "http://evil.example"})[0], 403, "a foreign Origin")

    with stand_in_engine("exec sleep 60") as d:
        wait_until(lambda: d.try_health().get("state") == "loading", 10, "an engine that loads for long")
        loading = is_health(d.call("GET", "/health"), 503, "loading", "loading")
        check(loading["reason"], "a reason")
        job = is_envelope(d.submit("while it loads").json, "a submit while it loads")
        same((job["state"], job["waiting_for"], job["tokens"]["prompt"]), ("queued", "upstream", None), "it waits")
        check("not counted" in job["note"], f"its note {job['note']}")
        same(d.call("POST", f"/v1/jobs/{job['job_id']}/cancel").json["state"], "cancelled", "it can be cancelled")
    with stand_in_engine("exit 3") as d:
        first = d.submit("before it is known").json["job_id"]
        wait_until(lambda: d.try_health().get("state") == "failed", 15, "an engine that cannot start")
        is_health(d.call("GET", "/health"), 503, "failed", "failed")
        for job in (first, d.submit("after it is known").json["job_id"]):
            done = is_envelope(d.wait_terminal(job, 10), "an engine that cannot start")
            same((done["state"], done["reason"]), ("failed", "model_missing"), "a job without an engine")

    with daemon("--model", "/nowhere.gguf", "--engine", "cpu", wait_ready=False) as d:
        wait_until(lambda: d.try_health().get("state") == "failed", 10, "no model")
        failed = is_health(d.call("GET", "/health"), 503, "failed", "failed")
        check("/nowhere.gguf" in failed["reason"], f"the reason names the file: {failed['reason']}")
        for i in range(2):
            job = is_envelope(d.wait_terminal(d.submit(f"without a model {i}").json["job_id"], 10), "no model")
            same((job["state"], job["reason"]), ("failed", "model_missing"), f"job {i} without a model")
            check(job["error"]["hint"], "its hint")
        same(d.wait_terminal(d.submit("ask", kind="ask").json["job_id"], 10)["reason"], "model_missing", "an ask")
        chat = d.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        is_error(chat, 503, "model_missing", "a chat")
        same(d.call("GET", "/v1/models").json["data"], [], "no models")


def http_rules():
    with daemon(settings="max_body_bytes = 2000\n") as d:
        for path in ("/health", "/v1/models", "/v1/jobs"):
            reply = d.call("HEAD", path)
            same((reply.status, reply.body), (200, b""), f"HEAD {path}")
        same(d.call("HEAD", "/nowhere").status, 404, "HEAD of nothing")
        for method, path, allow in [("POST", "/health", "GET"), ("PUT", "/v1/jobs", "POST"),
                                    ("GET", "/v1/chat/completions", "POST"), ("DELETE", "/v1/models", "GET"),
                                    ("PATCH", f"/v1/jobs/{'0' * 26}", "DELETE")]:
            reply = d.call(method, path)
            same(reply.status, 405, f"{method} {path}")
            check(allow in reply.headers.get("Allow", ""), f"Allow of {path}: {reply.headers.get('Allow')}")
            check(ERROR <= set(reply.json["error"]), f"the body of 405: {reply.json}")
        is_error(d.call("GET", "/nowhere"), 404, "not_found", "an unknown path")
        for method, path in [("POST", "/v1/completions"), ("POST", "/v1/responses"), ("GET", "/metrics"), ("GET", "/")]:
            error = is_error(d.call(method, path, {} if method == "POST" else None), 404, "not_found", path)
            check("yet" in error["message"] and error["hint"], f"{path} says that it is not there yet: {error}")
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            reply = d.call("POST", path, {})
            same((reply.status, reply.json["type"], reply.json["error"]["type"]), (404, "error", "not_found_error"), path)
        is_error(d.call("GET", "/v1/jobs/../jobs"), 400, "bad_request", "a dot segment")
        is_error(d.call("POST", "/v1/jobs", {"task": "x" * 3000}), 413, "too_large", "a body too large")
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            reply = d.call("POST", "/v1/jobs", raw=b'{"task": "x"}', headers={"Content-Type": kind})
            is_error(reply, 415, "unsupported_media", kind)
        same(d.call("POST", "/v1/jobs", {"task": "y"}, headers={"Content-Type": "application/json; charset=utf-8"})
             .status, 201, "JSON with a charset")
        job = d.submit("to cancel").json["job_id"]
        for headers in ({}, {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": "0"},
                        {"Content-Type": "application/json"}):
            same(d.call("POST", f"/v1/jobs/{job}/cancel", raw=b"" if headers else None, headers=headers).status, 200,
                 f"cancel without a body and with {headers}")
        same(d.call("POST", f"/v1/jobs/{job}/cancel", {}).status, 200, "cancel with an empty object")
        answer = raw(d.socket, b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"tas\r\n8\r\nk\":\"zz\"}\r\n0\r\n\r\n")
        check(answer.startswith(b"HTTP/1.1 201"), f"a chunked body: {answer[:60]}")
        two = raw(d.socket, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        same(two.count(b"HTTP/1.1 200"), 2, "two requests on one connection")
        check(raw(d.socket, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400"), "nonsense")
        reply = d.call("GET", "/health")
        same(reply.headers.get("Content-Type", "").split(";")[0], "application/json", "the type of JSON")


# --- the process ---------------------------------------------------------------------------------

def ponderd(*arguments, env=None, **kwargs):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PONDER_", "XDG_"))}
    return subprocess.run([BIN / "ponderd", *arguments], capture_output=True, text=True, timeout=20,
                          stdin=subprocess.DEVNULL, env={**clean, **(env or {})}, **kwargs)


@contextlib.contextmanager
def process(*arguments, env=None, umask=None, socket_at=None):
    """A ponderd with exactly these arguments that serves `socket_at`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PONDER_", "XDG_"))}
    p = subprocess.Popen([BIN / "ponderd", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True, env={**clean, **(env or {})},
                         preexec_fn=(lambda: os.umask(umask)) if umask is not None else None)
    try:
        wait_until(lambda: socket_at.exists() or p.poll() is not None, 10, f"{socket_at} is there")
        if p.poll() is None and len(str(socket_at)) < 108:
            call_at(socket_at, "GET", "/health")  # the socket is there before all else is
        yield p
    finally:
        if p.poll() is None:
            p.terminate()
        try:
            same(p.wait(20), 0, "SIGTERM ends it with 0")
        finally:
            p.stderr.close()


def call_at(path, method, target):
    connection = UnixConnection(path, 20)
    try:
        connection.request(method, target)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def modes(top):
    wrong = []
    for where, directories, files in os.walk(top):
        for name in [".", *directories]:
            mode = stat.S_IMODE(os.stat(os.path.join(where, name)).st_mode)
            if mode != 0o700:
                wrong.append((os.path.join(where, name), oct(mode)))
        for name in files:
            mode = stat.S_IMODE(os.lstat(os.path.join(where, name)).st_mode)
            if mode != 0o600:
                wrong.append((os.path.join(where, name), oct(mode)))
    return wrong


def places():
    for umask in (0o000, 0o077, 0o777):
        with tempfile.TemporaryDirectory(prefix="ponder-e2e-") as top:
            home = pathlib.Path(top) / "home"
            with process("--home", home, "--engine", "stub", "--port", "0", umask=umask,
                         socket_at=home / "ponderd.sock"):
                same(call_at(home / "ponderd.sock", "GET", "/health")[1]["tcp"]["addresses"], [], "no TCP")
                same({p.name for p in home.iterdir()} >= {"ponder.db", "ponderd.sock", "ponderd.lock", "api-key",
                                                           "logs", "models"}, True, "one directory holds all")
                same(modes(home), [], f"modes under umask {umask:o}")
                second = ponderd("--home", str(home), "--engine", "stub", "--port", "0")
                check(second.returncode == 0 and "already running" in second.stderr, f"a second daemon: {second}")
                same(call_at(home / "ponderd.sock", "GET", "/health")[0], 200, "the first goes on")

    with tempfile.TemporaryDirectory(prefix="ponder-e2e-") as top:
        top = pathlib.Path(top)
        with process("--engine", "stub", "--port", "0", env={"PONDER_HOME": str(top / "p")},
                     socket_at=top / "p" / "ponderd.sock"):
            pass
        state = top / ".local/state/ponder"
        with process("--engine", "stub", "--port", "0", env={"HOME": str(top)}, socket_at=state / "ponderd.sock"):
            same({p.name for p in state.iterdir()} >= {"ponder.db", "ponderd.lock", "api-key", "logs"}, True, "HOME")
            check((top / ".local/share/ponder/models").is_dir(), "models below HOME")
        xdg = {"HOME": str(top), "XDG_STATE_HOME": str(top / "s"), "XDG_CONFIG_HOME": str(top / "c"),
               "XDG_DATA_HOME": str(top / "d")}
        (top / "c/ponder").mkdir(parents=True)
        (top / "c/ponder/ponder.toml").write_text("max_queued = 7\n")
        with process("--engine", "stub", "--port", "0", env=xdg, socket_at=top / "s/ponder/ponderd.sock"):
            same(call_at(top / "s/ponder/ponderd.sock", "GET", "/health")[1]["queue"]["limit"], 7, "the XDG ponder.toml")
            check((top / "d/ponder/models").is_dir(), "models in XDG_DATA_HOME")

        long = top / ("l" * 100) / ("m" * 60)
        with process("--home", long, "--engine", "stub", "--port", "0", socket_at=long / "ponderd.sock"):
            ps = subprocess.run([BIN / "ponder", "--home", long, "health", "--json"], capture_output=True, text=True,
                                timeout=20)
            same(ps.returncode, 0, f"a long socket path works: {ps.stderr}")

        other = top / "other.toml"
        other.write_text("max_queued = 9\nkeep_read = 3\n")
        shown = ponderd("--home", str(top / "q"), "--config", str(other), "--print-config")
        check(shown.returncode == 0 and re.search(r"^max_queued = 9\b", shown.stdout, re.M), f"--print-config {shown}")
        same(ponderd("--home", str(top / "q"), "--config", str(other), "--check-config").returncode, 0, "--check-config")
        other.write_text("max_queue = 9\n")
        bad = ponderd("--home", str(top / "q"), "--config", str(other), "--check-config")
        check(bad.returncode == 1 and "max_queued" in bad.stderr, f"a misspelt key: {bad}")
        same(ponderd("--home", str(top / "q"), "--config", str(top / "none"), "--check-config").returncode, 2,
             "a config file that is not there")
        for flags in (("--port", "abc"), ("--ctx", "-1"), ("--engine", "gpu")):
            same(ponderd("--home", str(top / "q"), *flags).returncode, 2, f"usage: {flags}")
        lost = ponderd("--home", str(top / "q"), "--model", str(top / "no.gguf"), "--check-config")
        check(lost.returncode == 1 and str(top / "no.gguf") in lost.stderr, f"a model that is not there: {lost}")
        same(ponderd("--nonsense").returncode, 2, "usage")
        version = ponderd("--version")
        check(version.returncode == 0 and "ponderd" in version.stdout, "--version")


def network():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with tempfile.TemporaryDirectory(prefix="ponder-e2e-") as top:
            refused = ponderd("--home", top, "--engine", "stub", "--port", str(port))
            check(refused.returncode == 1 and str(port) in refused.stderr, f"a taken --port: {refused}")
            home = pathlib.Path(top)
            (home / "ponder.toml").write_text(f"port = {port}\n")
            with process("--home", home, "--engine", "stub", socket_at=home / "ponderd.sock"):
                status, body = call_at(home / "ponderd.sock", "GET", "/health")
                check(str(port) in json.dumps(body["tcp"]), f"health says why there is no TCP: {body['tcp']}")
    one, two = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="ponder-e2e-") as top:
        home = pathlib.Path(top)
        with process("--home", home, "--engine", "stub", "--port", "0", "--listen", f"127.0.0.1:{one}", "--listen",
                     f"127.0.0.2:{two}", socket_at=home / "ponderd.sock"):
            key = (home / "api-key").read_text().strip()
            same(tcp_call(one, "GET", "/v1/models", {"x-api-key": key})[0], 200, "--listen")
            connection = http.client.HTTPConnection("127.0.0.2", two, timeout=20)
            connection.request("GET", "/v1/models", headers={"x-api-key": key})
            same(connection.getresponse().status, 200, "--listen again")
            connection.close()
        same(ponderd("--home", top, "--listen", "nonsense").returncode, 2, "a --listen that is no address")
        detached = ponderd("--home", top, "--engine", "stub", "--port", "0", "--detach")
        same(detached.returncode, 0, f"--detach: {detached.stderr}")
        try:
            same(call_at(home / "ponderd.sock", "GET", "/health")[0] in (200, 503), True, "it serves when it returns")
            check((home / "logs/ponderd.log").stat().st_size > 0, "its log")
            same(modes(home / "logs"), [], "modes of the log")
            second = ponderd("--home", top, "--engine", "stub", "--port", "0", "--detach")
            check(second.returncode == 0 and "already running" in second.stderr, f"a second --detach: {second}")
        finally:
            stopped = subprocess.run([BIN / "ponder", "--home", home, "stop"], capture_output=True, text=True, timeout=30)
            same(stopped.returncode, 0, f"ponder stop: {stopped.stderr}")


# 7a row 30, CVE-2026-43631: a model that was given back while idle was used once more.
def unloading():
    with daemon() as d:
        pid = d.try_health()["engine"]["pid"]
        running = d.submit(stub(tokens=900, rate=50)).json["job_id"]
        wait_until(lambda: d.job(running)["state"] == "running", 10, "a job runs")
        is_error(d.call("POST", "/v1/unload"), 409, "not_terminal", "unload at work")
        d.call("POST", f"/v1/jobs/{running}/cancel")
        reply = d.call("POST", "/v1/unload")
        same((reply.status, reply.json), (200, {"unloaded": True, "was_loaded": True}), "unload")
        check(not pathlib.Path(f"/proc/{pid}/exe").exists(), "the worker is gone")
        health = d.call("GET", "/health")
        same((health.status, health.json["state"], health.json["engine"]["pid"]), (200, "ready", None), "health then")
        same(d.call("POST", "/v1/unload").json["was_loaded"], False, "unload again")
        same(d.wait_terminal(d.submit("wakes it").json["job_id"])["state"], "completed", "the next job loads it again")
        health = d.call("GET", "/health").json["engine"]
        check(health["pid"] not in (None, pid) and health["restarts"] == 0, f"another worker, no restart: {health}")


def pruning():
    with daemon() as d:
        jobs = {}
        for name, fields in (("read", {}), ("unread", {}), ("pinned", {"pin": True}), ("other", {"workspace": "/v"})):
            jobs[name] = d.submit(name, **{"workspace": "/w", **fields}).json["job_id"]
            d.wait_terminal(jobs[name])
            if name != "unread":
                d.call("GET", f"/v1/jobs/{jobs[name]}/result")
        prune = lambda **body: d.call("POST", "/v1/jobs/prune", body).json["pruned"]
        same(prune(workspace="/w", dry_run=True), [jobs["read"]], "what would go")
        same(d.job(jobs["read"])["state"], "completed", "a dry run changes nothing")
        same(prune(workspace="/w"), [jobs["read"]], "what was read goes")
        same(prune(workspace="/w"), [], "once")
        same(prune(workspace="/w", unread=True), [jobs["unread"]], "unread ones on demand")
        same(prune(), [jobs["other"]], "of all workspaces")
        same([d.job(jobs[n])["state"] for n in jobs], ["expired", "expired", "completed", "expired"], "pinned ones stay")


def has_service():
    """Whether systemd would start a daemon again on this machine: then nobody is warned."""
    return any(list(pathlib.Path(top).glob("*.wants/ponder*.service")) for top in (
        "/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"))


def warnings():
    if has_service():
        return print("not run: a service of this machine starts the daemon again", flush=True)
    with tempfile.TemporaryDirectory() as config:
        d = Daemon("--engine", "stub", environment={"XDG_CONFIG_HOME": config})
        with d:
            d.start()
            made = d.submit(stub(tokens=900, rate=50))
            check("logout or a reboot" in (made.json["warning"] or ""), f"nothing would start it again: {made.json['warning']}")
            check("warning" not in d.job(made.json["job_id"]), "said once, to who submits")
            twin = d.submit(stub(tokens=900, rate=50))
            same((twin.status, twin.json.get("warning")), (200, None), "not of a job that was there")
            ask = d.call("POST", "/v1/jobs", {"kind": "ask", "task": "waited for"})
            same((ask.status, ask.json["warning"]), (201, None), "not to who waits")
            d.stop()
            wants = pathlib.Path(config, "systemd", "user", "default.target.wants")
            wants.mkdir(parents=True)
            (wants / "ponder.service").touch()
            d.start()
            warning = d.submit("with a service of the user").json["warning"]
            check(warning is None or "loginctl enable-linger" in warning, f"a service of the user's: {warning}")


def on_done():
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        script = work / "done.sh"
        script.write_text(f'#!/bin/sh\necho "$@" >> {work}/said\nenv >> {work}/env\n')
        script.chmod(0o755)
        os.environ["PONDER_TEST_SECRET"] = "secret"
        d = stack.enter_context(daemon(settings=f'on_done = ["{script}", "a b; $(x)"]\n'))
        first = d.submit("one").json["job_id"]
        d.wait_terminal(first)
        cut = d.submit(stub(tokens=9, fault="exit0", after=4), effort="none").json["job_id"]
        d.wait_terminal(cut)
        said = work / "said"
        wait_until(lambda: said.exists() and len(said.read_text().splitlines()) == 2, 10, "on_done ran twice")
        same(said.read_text().splitlines(), [f"a b; $(x) {first} completed", f"a b; $(x) {cut} incomplete"],
             "with its arguments, the id and the state")
        check("secret" not in (work / "env").read_text(), "nothing of the environment is passed on")
        # The end that the next daemon finds is told as well.
        ask = d.call("POST", "/v1/jobs", {"kind": "ask", "task": stub(tokens=900, rate=50)}).json["job_id"]
        wait_until(lambda: d.job(ask)["state"] == "running", 10, "the ask runs")
        d.kill()
        d.start()
        same(d.job(ask)["state"], "interrupted", "an ask whose daemon died")
        wait_until(lambda: len(said.read_text().splitlines()) == 3, 10, "on_done ran for it")
        same(said.read_text().splitlines()[2:], [f"a b; $(x) {ask} interrupted"], "an end made by a start")


CHECKS = [unloading, pruning, on_done, warnings, envelopes, submits, budgets, listing, retention, events, lanes, lives, deaths, chat, full_of_chats, health, http_rules,
          places, network]

if __name__ == "__main__":
    wanted = [c for c in CHECKS if not sys.argv[2:] or c.__name__ in sys.argv[2:]]
    for one in wanted:
        began, before = time.monotonic(), len(breaches)
        try:
            one()
        except Exception as e:  # noqa: BLE001 - a broken check must not hide the others
            import traceback
            traceback.print_exc()
            check(False, f"{one.__name__} went wrong: {e!r}")
        print(f"{one.__name__}: {time.monotonic() - began:.1f} s, {len(breaches) - before} breaches", flush=True)
    finish("contract")
