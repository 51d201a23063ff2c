#!/usr/bin/env python3
"""Every scripted fault, seen through each door: the state and reason, the partial text, isError
with the next call over MCP, and the exit code of ponder. No cut answer may pass for a whole one.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import PLANTED, TERMINAL, Daemon, Mcp, check, cli, door, finish, json, threading, time, wait_until

# (name, markers, more fields of the job, state, reason, exit code, a partial text is expected)
FAULTS = [
    ("exit0", "[[stub tokens=200 think=5 rate=400]] [[stub fault=exit0 after=60]]", {}, "incomplete", "stream_lost", 5, True),
    ("reasoning", "[[stub think=500 rate=2000]]", {"max_reasoning_tokens": 50, "max_answer_tokens": 50},
     "incomplete", "reasoning_exhausted", 5, False),
    ("endless", "[[stub fault=endless_thinking rate=4000]]", {"max_reasoning_tokens": 300, "max_answer_tokens": 50},
     "incomplete", "reasoning_exhausted", 5, False),
    ("output", "[[stub tokens=500 think=5 rate=2000]]", {"max_reasoning_tokens": 100, "max_answer_tokens": 40},
     "incomplete", "output_limit", 5, True),
    ("hang", "[[stub tokens=200 think=5 rate=400]] [[stub fault=hang after=60]]", {}, "incomplete", "stalled", 5, True),
    ("loop", "[[stub tokens=20000 think=5 rate=20000]] [[stub fault=loop after=20]]", {}, "incomplete", "repetition", 5, True),
    ("deadline", "[[stub tokens=2000 think=5 rate=100]]", {"deadline_s": 1.5}, "incomplete", "deadline", 5, True),
    ("schema", "[[stub tokens=5 think=2 rate=1000]]", {"schema": {"type": "object"}}, "incomplete", "schema_invalid", 5, True),
    ("crash", "[[stub tokens=200 think=5 rate=400]] [[stub fault=crash after=30]]", {}, "failed", "poison", 1, True),
    ("oom", "[[stub tokens=200 think=5 rate=400]] [[stub fault=out_of_memory after=30]]", {}, "failed", "out_of_memory", 1, True),
]
WHOLE = [
    ("plain", "[[stub tokens=30 think=5 rate=2000]]", {}),
    ("slow", "[[stub tokens=12 think=2]] [[stub fault=slow after=5]]", {}),
    ("bytes", "[[stub tokens=40 think=5 rate=2000]] [[stub fault=invalid_utf8 after=20]]", {}),
]


def main():
    config = "stall_s = 2\n"
    with Daemon("--engine", "stub") as daemon:
        (daemon.home / "ponder.toml").write_text(config)
        daemon.start()
        via = door(daemon)
        mcp = None if PLANTED else Mcp(daemon.home)
        for name, markers, fields, state, reason, code, has_partial in FAULTS:
            job_id = daemon.submit(f"{name} {markers}", **fields, via=via).json["job_id"]
            job = daemon.wait_terminal(job_id, 60, via=via)
            check((job["state"], job["reason"]) == (state, reason),
                  f"{name}: {job['state']}({job['reason']}), wanted {state}({reason})")
            if PLANTED:
                continue
            partial = daemon.text(job_id)
            check(bool(partial) == has_partial, f"{name}: partial text {partial[:60]!r}")
            reply = daemon.call("GET", f"/v1/jobs/{job_id}/result?part=answer")
            check(reply.status == 409 and reply.json["error"]["code"] == "not_completed",
                  f"{name}: the answer of a job that did not complete is {reply.status}")
            waited = cli(daemon.home, "wait", job_id)
            check(waited.returncode == code, f"{name}: ponder wait exits {waited.returncode}, wanted {code}")
            check(waited.stdout.strip() == f"{job_id} {state}", f"{name}: ponder wait prints {waited.stdout!r}")
            shown = cli(daemon.home, "result", job_id)
            check(shown.returncode == code and not shown.stdout,
                  f"{name}: ponder result exits {shown.returncode} and prints {shown.stdout[:40]!r}")
            answer = mcp.tool("result", job_id=job_id)
            blocks = answer.get("content", [])
            text = blocks[0]["text"] if blocks else ""
            check(answer.get("isError") is True and len(blocks) == 1, f"{name}: result over MCP is an error of one block")
            check(len(text) <= 8000 and job_id in text and reason in text and "partial" in text.lower() and "Next call: " in text,
                  f"{name}: the error names id, reason and the next call: {text[:200]!r}")
            check(job["next"]["mcp"]["tool"] in ("result", "submit", "status") and job["next"]["shell"].startswith("ponder"),
                  f"{name}: the envelope holds the next call: {job['next']}")
            if reason == "reasoning_exhausted":
                thinking = daemon.text(job_id, "reasoning")
                check(bool(thinking), f"{name}: the thinking is kept")
                read = mcp.tool("result", job_id=job_id, part="reasoning")
                check(not read.get("isError") and thinking[:20] in read["content"][0]["text"], f"{name}: and readable over MCP")
            page = mcp.tool("result", job_id=job_id, part="partial")
            check(not page.get("isError") and (not has_partial or partial[:20] in page["content"][0]["text"]),
                  f"{name}: the partial text is readable over MCP")
        for name, markers, fields in WHOLE:
            job = daemon.wait_terminal(daemon.submit(f"{name} {markers}", **fields, via=via).json["job_id"], via=via)
            check(job["state"] == "completed", f"{name}: {job['state']}({job['reason']})")
            if not PLANTED:
                text = daemon.text(job["job_id"], "answer")
                check(name != "bytes" or "\ufffd" in text, "bad bytes come out as U+FFFD")
        if not PLANTED:
            cancelled(daemon, mcp)
            device_lost(daemon)
            mcp.close()
    if not PLANTED:
        interrupted()
    finish("stub faults")


def cancelled(daemon, mcp):
    for markers, phase in (("[[stub prefill_s=30]]", "prefill"), ("[[stub tokens=3000 rate=100]]", "answering")):
        job_id = daemon.submit(f"to cancel {phase} {markers}", effort="none").json["job_id"]
        wait_until(lambda: daemon.job(job_id)["phase"] == phase, 10, f"the job is in {phase}")
        began = time.monotonic()
        ended = daemon.call("POST", f"/v1/jobs/{job_id}/cancel", {}).json
        check(ended["state"] == "cancelled" and time.monotonic() - began < 1, f"cancelled in {phase} within 1 s")
        check(cli(daemon.home, "wait", job_id).returncode == 6, "ponder wait exits 6 for a cancelled job")
        check(not mcp.tool("cancel", job_id=job_id).get("isError"), "cancel of a cancelled job is no error")
        check(mcp.tool("result", job_id=job_id).get("isError") is True, "no answer of a cancelled job")
    running = cli(daemon.home, "submit", "[[stub prefill_s=5]] a", "--label", "later").stdout.strip()
    check(cli(daemon.home, "wait", "--wait-s", "0.2", running).returncode == 124, "ponder wait --wait-s ends 124")
    check(cli(daemon.home, "result", running).returncode == 3, "the result of a running job exits 3")
    check(cli(daemon.home, "cancel", running).returncode == 0, "ponder cancel exits 0")
    check(cli(daemon.home, "show", "zzzzzzzzzzzzzzzzzzzzzzzzzz").returncode == 4, "an unknown job exits 4")


def device_lost(daemon):
    job_id = daemon.submit("[[stub tokens=100 think=5 rate=300]] [[stub fault=device_lost after=30]]").json["job_id"]
    wait_until(lambda: daemon.try_health().get("engine", {}).get("restarts", 0) >= 3, 60, "the worker is replaced again")
    job = daemon.job(job_id)
    check(job["state"] in ("queued", "running") and job["attempt"] <= 1,
          f"a lost device costs no attempt: {job['state']} attempt {job['attempt']}")
    daemon.call("POST", f"/v1/jobs/{job_id}/cancel", {})


def interrupted():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        ask = daemon.call("POST", "/v1/jobs", {"kind": "ask", "task": "[[stub tokens=2000 think=5 rate=100]]"}).json
        told = daemon.call("POST", "/v1/jobs", {"kind": "ask", "task": "told [[stub tokens=200 think=5 rate=100]]"}).json
        batch = daemon.submit("[[stub tokens=200 think=5 rate=100]]").json
        wait_until(lambda: daemon.job(ask["job_id"])["phase"] == "answering", 10, "the ask answers")
        wait_until(lambda: daemon.job(told["job_id"], wait_s=0.3)["phase"] == "answering", 10, "the told ask answers")
        daemon.job(told["job_id"], wait_s=0.3)
        time.sleep(0.6)
        daemon.stop()
        daemon.start()
        job = daemon.job(ask["job_id"])
        check(job["state"] == "interrupted", f"a clean stop makes an ask interrupted, it is {job['state']}")
        check(daemon.text(ask["job_id"]) != "", "its partial text is kept")
        check(cli(daemon.home, "wait", ask["job_id"]).returncode == 6, "ponder wait exits 6 for an interrupted job")
        for kept in (told, batch):
            end = daemon.wait_terminal(kept["job_id"], 30)
            check(end["state"] == "completed", f"a batch job and a told ask go on: {end['state']}")
            check(end["attempt"] <= 1, "a clean stop counts no attempt")


main()
