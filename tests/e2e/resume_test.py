"""Going on from stored tokens, on the real programs: a job whose daemon is killed (kill -9) again and
again has in the end the text it would have had uncut; so has one that a budget or a cancel cut and
that was resumed in a new job.  resume_test.py BIN_DIR [--planted restart]

The short size kills at 4 points of the stub's text and at 6 random ones of the bundled model's, the full
one (PONDER_SOAK=1) at 50 of each.

--planted restart sets after_crash = "restart": then tokens are made twice, and the check of the running
time must find it out.
"""
import functools
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault"))
from profile import FULL, figure
from harness import PLANTED, ROOT, Daemon, breaches, check, finish, wait_until

QUESTION = "How many Collatz steps from 27 to 1?"  # 111 of them, each a line of thinking
SEED = 20240611
BODY = {"effort": "xhigh", "seed": SEED, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_reasoning_tokens": 6000,
        "max_answer_tokens": 300}


def engine(kind):
    return ["--engine", "stub"] if kind == "stub" else ["--model", str(ROOT / "models/pebble/pebble-q8_0.gguf")]


def texts(d, job_id):
    return d.text(job_id, "reasoning"), d.text(job_id, "partial")


def length(d, job_id):
    job = d.job(job_id)
    return job["reasoning_chars"] + job["total_chars"], job["state"]


@functools.cache
def uncut(kind, task):
    with Daemon(*engine(kind)) as d:
        d.start()
        job_id = d.submit(task, **BODY).json["job_id"]
        job = d.wait_terminal(job_id)
        return job, texts(d, job_id)


def same(d, job_id, job, wanted, want_text, what):
    check(job["state"] == wanted["state"] and job["reason"] == wanted["reason"],
          f"{what}: ends {wanted['state']} {wanted['reason']}, got {job['state']} {job['reason']}")
    got = texts(d, job_id)
    for name, mine, whole in zip(("reasoning", "answer"), got, want_text):
        at = next((i for i, (a, b) in enumerate(zip(mine, whole)) if a != b), min(len(mine), len(whole)))
        check(mine == whole, f"{what}: the {name} differs at character {at} of {len(whole)}")
    for name in ("reasoning", "answer"):
        check(job["tokens"][name] == wanted["tokens"][name],
              f"{what}: {wanted['tokens'][name]} {name} tokens, got {job['tokens'][name]}")


def killed_at_several_points(kind, task, shares=(0.05, 0.3, 0.55, 0.8)):
    """How often the running job was hit."""
    wanted, want_text = uncut(kind, task)
    total = len(want_text[0]) + len(want_text[1])
    check(total > 100, f"{kind}: the text is long enough to be cut, {total} characters")
    with Daemon(*engine(kind)) as d:
        if PLANTED == "restart":
            (d.home / "ponder.toml").write_text('after_crash = "restart"\n')
        d.start()
        job_id = d.submit(task, **BODY).json["job_id"]
        kills = 0
        for share in shares:
            def far_enough():
                n, state = length(d, job_id)
                return n >= share * total or state not in ("queued", "running")
            wait_until(far_enough, 60, f"{kind}: {share:.0%} of the text")
            n, state = length(d, job_id)
            if state not in ("queued", "running"):
                break
            before = d.text(job_id, "reasoning") + d.text(job_id, "partial")
            d.kill(signal.SIGKILL)
            kills += 1
            d.start(wait_ready=False)
            wait_until(lambda: d.try_health().get("state"), 20, "the daemon answers again")
            after = d.text(job_id, "reasoning") + d.text(job_id, "partial")
            # What was told half a second before the kill was on disk; nothing of it is lost or changed.
            check(before.startswith(after) or after.startswith(before), f"{kind}: the text goes on from what was told")
        check(kills >= len(shares) // 2, f"{kind}: {kills} kills hit the running job")
        job = d.wait_terminal(job_id)
        same(d, job_id, job, wanted, want_text, f"{kind}: killed {kills} times")
        check(job["attempt"] == 1, f"{kind}: a killed daemon costs no attempt")
        check("differs" not in (job["note"] or ""), f"{kind}: {job['note']}")
        if kind == "stub":  # its time is that of its tokens, on any machine
            check(job["run_s"] < 1.9 * wanted["run_s"],
                  f"tokens are not made twice: {wanted['run_s']} s uncut, {job['run_s']} s")
    return kills


def killed_at_random_points(kind, task, kills, at_once):
    """`at_once` kills in each run, until `kills` have hit a running job."""
    seed = int(os.environ.get("PONDER_SEED", random.randrange(1 << 32)))
    chance, done = random.Random(seed), 0
    print(f"{kind}: seed {seed}", flush=True)
    began = time.monotonic()
    while done < kills and time.monotonic() < began + 1200:
        done += killed_at_several_points(kind, task, sorted(chance.uniform(0.01, 0.95) for _ in range(at_once)))
    figure(4, f"{kind}: resumed after kill -9 at {done} random tokens, runs that do not give the uncut text",
           len(breaches), "0")
    check(done >= kills, f"{kind}: {done} of {kills} kills hit a running job")


def worker_killed(kind, task):
    wanted, want_text = uncut(kind, task)
    with Daemon(*engine(kind)) as d:
        d.start()
        job_id = d.submit(task, **BODY).json["job_id"]
        wait_until(lambda: length(d, job_id)[0] > 40, 60, "some text")
        os.kill(d.try_health()["engine"]["pid"], signal.SIGKILL)
        job = d.wait_terminal(job_id)
        same(d, job_id, job, wanted, want_text, f"{kind}: its worker killed")
        check(job["attempt"] == 1, f"{kind}: a worker killed from outside costs no attempt")


def stopped(kind, task):
    wanted, want_text = uncut(kind, task)
    with Daemon(*engine(kind)) as d:
        d.start()
        job_id = d.submit(task, **BODY).json["job_id"]
        wait_until(lambda: length(d, job_id)[0] > 40, 60, "some text")
        d.stop()
        d.start()
        job = d.wait_terminal(job_id)
        same(d, job_id, job, wanted, want_text, f"{kind}: stopped and started")


def resumed_in_a_new_job(kind, task):
    wanted, want_text = uncut(kind, task)
    with Daemon(*engine(kind)) as d:
        d.start()
        # Cut by a cancel.
        parent = d.submit(task, **BODY).json["job_id"]
        wait_until(lambda: length(d, parent)[0] > 40, 60, "some text")
        d.call("POST", f"/v1/jobs/{parent}/cancel")
        told = texts(d, parent)
        made = d.call("POST", "/v1/jobs", {"continue_from": parent, "mode": "resume"})
        check(made.status == 201 and made.json["parent_id"] == parent, f"{kind}: resume is accepted: {made.body[:300]}")
        child = made.json["job_id"]
        job = d.wait_terminal(child)
        same(d, child, job, wanted, want_text, f"{kind}: resumed after a cancel")
        check(texts(d, child)[0].startswith(told[0]), f"{kind}: it begins with its parent's text")
        if kind == "pebble":  # the stub keeps no states
            check(job["cache"]["path"] in ("device", "host") and job["tokens"]["cached"] >= job["tokens"]["prompt"] - 16,
                  f"{kind}: it goes on from a state in memory: {job['cache']} {job['tokens']}")
        check(job["effort"] == wanted["effort"], f"{kind}: the effort is inherited")
        # Cut by its budget, twice.
        small = {**BODY, "max_reasoning_tokens": 7}
        parent = d.submit(task, **small).json["job_id"]
        check(d.wait_terminal(parent)["reason"] == "reasoning_exhausted", f"{kind}: the budget ends it")
        first = d.call("POST", "/v1/jobs", {"continue_from": parent, "mode": "resume", "max_reasoning_tokens": 5}).json
        job = d.wait_terminal(first["job_id"])
        check(job["reason"] == "reasoning_exhausted" and job["tokens"]["reasoning"] == 12,
              f"{kind}: a given budget counts from there on: {job['reason']} {job['tokens']}")
        second = d.call("POST", "/v1/jobs", {"continue_from": first["job_id"], "mode": "resume"}).json
        job = d.wait_terminal(second["job_id"])
        if wanted["state"] == "completed":
            same(d, second["job_id"], job, wanted, want_text, f"{kind}: resumed after its budgets")


def answers_now(kind, task):
    with Daemon(*engine(kind)) as d:
        d.start()
        parent = d.submit(task, **BODY).json["job_id"]
        wait_until(lambda: d.job(parent)["reasoning_chars"] > 20, 60, "some thinking")
        made = d.call("POST", "/v1/jobs", {"continue_from": parent, "mode": "answer_now"})
        check(made.status == 201, f"{kind}: answer_now is accepted: {made.body[:300]}")
        check(d.job(parent)["state"] == "cancelled", f"{kind}: the running job ends cancelled")
        child = made.json["job_id"]
        job = d.wait_terminal(child)
        check(job["state"] == "completed" and job["forced_answer"] is True,
              f"{kind}: a forced answer: {job['state']} {job['reason']} {job['forced_answer']}")
        check(d.text(child, "reasoning").startswith(d.text(parent, "reasoning")), f"{kind}: with its parent's thinking")
        check(len(d.text(child, "partial")) > 0, f"{kind}: with an answer")
        job_id = d.submit(task + " ", **{**BODY, "max_reasoning_tokens": 12, "on_limit": "answer"}).json["job_id"]
        job = d.wait_terminal(job_id)
        check(job["state"] == "completed" and job["forced_answer"] is True,
              f"{kind}: on_limit answer: {job['state']} {job['reason']} {job['forced_answer']}")


STUB = "[[stub tokens=150 think=250 rate=60]] count"
if PLANTED == "restart":
    killed_at_several_points("stub", STUB)
else:
    for kind, task in (("stub", STUB), ("pebble", QUESTION)):
        if len(sys.argv) > 2 and kind not in sys.argv: continue
        began = time.monotonic()
        if FULL:
            killed_at_random_points(kind, task, 50, 5)
        elif kind == "pebble":
            killed_at_random_points(kind, task, 6, 3)
        else:
            killed_at_several_points(kind, task)
        worker_killed(kind, task)
        stopped(kind, task)
        resumed_in_a_new_job(kind, task)
        answers_now(kind, task)
        print(f"{kind}: {time.monotonic() - began:.0f} s", flush=True)
finish("resume")
