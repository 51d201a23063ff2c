#!/usr/bin/env python3
"""Cancel is prompt, final and private; and a chat that nobody reads any more ends.

latency     a queued job is cancelled within 100 ms, one that runs (prefill, thinking, answer, or with
            a worker that does not move) within a second; the next one starts at once
crossed     a cancel and kill -9 at the same time: what was told or stored stays cancelled and never runs
            again, and the job beside it has its text
streams     a chat stream cut at 20 points, also queued and in prefill, gives its place back in a second
real_model  the same in a long prefill and in decode of the bundled model

Planted: lost_cancel (the wish is not stored), deaf_proxy (a dead client's connection stays open).
"""
import http.client
import json
import os
import random
import signal
import socket
import socketserver
import threading
import time

from profile import figure, size  # first: it knows where harness is
import audit
from harness import PLANTED, Daemon, check, finish, planted_sqlite, wait_until

SEED = int(os.environ.get("PONDER_SEED", random.randrange(1 << 32)))
CHANCE = random.Random(SEED)
UNREACHABLE = (OSError, http.client.HTTPException, ValueError)


def new_daemon(settings="", engine=("--engine", "stub")):
    daemon = Daemon(*engine, environment=planted_sqlite(PLANTED if PLANTED == "lost_cancel" else None))
    (daemon.home / "ponder.toml").write_text("max_queued = 10000\nkeep_unread = 10000\n" + settings)
    return daemon


def cancel(daemon, job_id):
    """(seconds until the answer, the envelope)."""
    began = time.monotonic()
    reply = daemon.call("POST", f"/v1/jobs/{job_id}/cancel")
    took = time.monotonic() - began
    check(reply.status == 200 and reply.json["state"] == "cancelled", f"a cancel is answered: {reply.status} {reply.body[:200]}")
    return took, reply.json


# Row 5, river#1245: a cancel of a running job dropped without notifications. T25: the device stays busy.
def latency(rounds):
    """`rounds` in prefill, as many in decode: thinking, answering and slow in turn."""
    phases = {"prefill": "prefill_s=20 tokens=10", "thinking": "think=4000 tokens=10 rate=200",
              "answering": "think=0 tokens=4000 rate=200", "slow": "think=0 tokens=4000 rate=2"}
    took_of = {name: [] for name in ["queued", "stopped worker", "next start", *phases]}
    decode = list(phases)[1:]
    with new_daemon() as daemon:
        daemon.start()
        for number in range(2 * rounds):
            name = "prefill" if number % 2 else decode[number // 2 % len(decode)]
            running = daemon.submit(f"running {number} [[stub {phases[name]}]]", max_answer_tokens=5000).json["job_id"]
            phase = "answering" if name == "slow" else name
            wait_until(lambda: daemon.job(running)["phase"] == phase, 10, f"the job is {phase}")
            time.sleep(CHANCE.uniform(0, 0.05))
            queued = daemon.submit(f"queued {number} [[stub tokens=5 rate=500]]").json["job_id"]
            after = daemon.submit(f"next {number} [[stub tokens=2 rate=1000]]").json["job_id"]
            took, job = cancel(daemon, queued)
            took_of["queued"].append(took)
            check(job["started_at"] is None, "a job cancelled while it waits never starts")
            stopped = number % 21 == 20  # in prefill and in decode
            pid = daemon.try_health()["engine"]["pid"]
            if stopped:
                os.kill(pid, signal.SIGSTOP)
            told = daemon.text(running)
            took, job = cancel(daemon, running)
            took_of["stopped worker" if stopped else name].append(took)
            kept = daemon.text(running)
            check(kept.startswith(told), "the partial text is kept")
            if stopped:
                os.kill(pid, signal.SIGCONT)
            began = time.monotonic()
            ended = daemon.wait_terminal(after, 10)
            took_of["next start"].append(time.monotonic() - began)
            check(ended["state"] == "completed", f"the next job runs: {ended['state']} {ended['reason']}")
            check(daemon.job(running)["state"] == "cancelled" and daemon.text(running) == kept, "cancelled stays as it was")
        audit.audit(daemon.home, " after cancels")
    running = [took for name in ["stopped worker", *phases] for took in took_of[name]]
    for what, took in {**took_of, "running, all together": running}.items():
        bound = 0.1 if what == "queued" else 0.5 if what == "next start" else 1
        check(took and max(took) <= bound, f"{what}: {max(took, default=0) * 1000:.0f} ms, at most {bound * 1000:.0f}")
        figure(8, f"{len(took)} cancels, {what}: at most", f"{max(took, default=0) * 1000:.0f} ms", f"{bound * 1000:.0f} ms")


def crossed(rounds):
    """Four victims a kill: two that run, two that wait; every third kill with a worker that does not move."""
    again = broken = answered = stored = crossings = 0
    long = "[[stub think=0 tokens=4000 rate=150]]"
    with new_daemon("max_running_batch = 3\n") as daemon:
        daemon.start()
        for number in range(rounds):
            stopped = number % 3 == 2 or PLANTED
            beside = f"beside {number} [[stub tokens=60 think=10 rate=250]]"
            other = daemon.submit(beside).json["job_id"]
            victims = [daemon.submit(f"victim {number} {k} {long}", max_answer_tokens=5000).json["job_id"] for k in range(4)]
            wait_until(lambda: daemon.text(victims[0]) and daemon.text(victims[1]), 10, "two of them answer")
            pid = daemon.try_health()["engine"]["pid"]
            if stopped:
                os.kill(pid, signal.SIGSTOP)
            told = {}

            def ask(job_id, delay):
                time.sleep(delay)
                try:
                    told[job_id] = daemon.call("POST", f"/v1/jobs/{job_id}/cancel").json["state"]
                except UNREACHABLE:
                    pass
            asking = [threading.Thread(target=ask, args=(job_id, CHANCE.uniform(0, 0.015))) for job_id in victims]
            for thread in asking:
                thread.start()
            # With the worker stopped nothing is told of those that run; but the wish has been there for 100 ms.
            time.sleep(0.15 if stopped else CHANCE.uniform(0.002, 0.02))
            daemon.kill()
            for thread in asking:
                thread.join()
            if stopped:
                os.kill(pid, signal.SIGKILL)
            before = {row["id"]: row for row in audit.rows(daemon.home)}
            daemon.start()
            after = {row["id"]: row for row in audit.rows(daemon.home)}
            for job_id in victims:
                crossings += 1
                row = before[job_id]
                on_disk = row["state"] == "cancelled" or row["cancel_requested"] == 1
                answered += job_id in told
                stored += on_disk
                check(job_id not in told or row["state"] == "cancelled",
                      f"a cancel that was answered is on the disk: {row['state']}")
                if job_id in told or on_disk or stopped:
                    seen = after[job_id]["state"], after[job_id]["claims"]
                    again += seen != ("cancelled", row["claims"])
                    check(seen == ("cancelled", row["claims"]), "cancelled is not run again: it is "
                          f"{seen[0]}, was {row['state']}, claims {row['claims']} to {seen[1]}")
                else:
                    cancel(daemon, job_id)
            if PLANTED and again:
                return
            job = daemon.wait_terminal(other, 20)
            text = daemon.text(other, "reasoning"), daemon.text(other)
            same = job["state"] == "completed" and text == audit.pure_text(beside, 60, 10)
            broken += not same
            check(same, f"the job beside cancelled ones has its text: {job['state']} {job['reason']}")
        audit.audit(daemon.home, " after cancels and kills")
        late = [row for row in audit.rows(daemon.home) if row["cancel_requested"] and row["state"] != "cancelled"]
        check(not late, f"no wish to cancel is forgotten: {len(late)}")
    print(f"crossed: {answered} answered, {stored} on the disk when the daemon died, of {crossings}", flush=True)
    figure(8, f"{crossings} cancels crossed with kill -9: run again, other texts changed", f"{again}, {broken}", "0, 0")


class DeafProxy:
    """Planted: between a client and the daemon, and does not tell that the client has gone."""

    def __init__(self, upstream):
        self.path = str(upstream) + ".deaf"

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                there = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                there.connect(str(upstream))
                there.sendall(self.request.recv(1 << 20))
                while data := there.recv(1 << 16):
                    try:
                        self.request.sendall(data)
                    except OSError:
                        pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(self.path, Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def chat(path, text):
    """A chat stream over a bare socket: what was read so far, and the socket to cut."""
    body = json.dumps({"model": "stub", "stream": True, "messages": [{"role": "user", "content": text}]}).encode()
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(str(path))
    client.settimeout(10)
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return client


def read_events(client, count):
    data = b""
    while data.count(b"data: ") < count:
        more = client.recv(1 << 16)
        if not more:
            break
        data += more
    return data


# Row 20, llama.cpp#24496, #13262: generation goes on after a disconnect, that of a queued request too.
def streams(points):
    worst = {"decode": 0, "prefill": 0, "queued": 0}
    with new_daemon("max_running_interactive = 1\n") as daemon:
        daemon.start()
        path = DeafProxy(daemon.socket).path if PLANTED == "deaf_proxy" else daemon.socket

        def queue():
            return daemon.try_health().get("queue", {})

        def free(name, cut, what, place="running"):
            began = time.monotonic()
            cut.close()
            gone = wait_until(lambda: queue()[place] == 0, 3, what)
            worst[name] = max(worst[name], time.monotonic() - began if gone else 3)
            return gone

        for point in range(points):
            client = chat(path, f"cut {point} [[stub tokens=3000 think=20 rate=300]]")
            read_events(client, 1 + point * 4)
            if not free("decode", client, f"a stream cut at event {1 + point * 4} gives its place back"):
                break
            if point % 4:
                continue
            client = chat(path, f"prefill {point} [[stub tokens=10 prefill_s=30]]")
            wait_until(lambda: queue()["running"] == 1, 5, "it is read")
            time.sleep(CHANCE.uniform(0, 0.2))
            free("prefill", client, "a stream cut in prefill gives its place back")
            first = chat(path, f"first {point} [[stub tokens=3000 rate=300]]")
            read_events(first, 3)
            waiting = chat(path, f"waiting {point} [[stub tokens=3000 rate=300]]")
            wait_until(lambda: queue()["ask"] == 1, 5, "the second one waits")
            free("queued", waiting, "a stream cut while it waits waits no longer", "ask")
            check(queue()["running"] == 1, "the one that runs is not disturbed")
            check(b"data: " in read_events(first, 5), "and goes on")
            free("decode", first, "its place is free")
        job_id = daemon.submit("then [[stub tokens=2 rate=1000]]", kind="ask").json["job_id"] if not PLANTED else None
        if job_id:
            check(daemon.wait_terminal(job_id, 5)["state"] == "completed", "and an ask runs")
    for name, took in worst.items():
        check(took <= 1, f"a stream cut in {name} gives its place back within 1 s, it took {took:.2f} s")
        figure(8, f"chat streams cut in {name}: the place is free after at most", f"{took * 1000:.0f} ms", "1000 ms")


def real_model(rounds):
    """The engine looks at the wish between two steps, also inside a prefill."""
    took_of = {}
    words = " ".join(f"{n} apples and {n * 7 % 1000} pears" for n in range(1500))
    with new_daemon(engine=()) as daemon:
        daemon.start()
        body = {"effort": "xhigh", "max_answer_tokens": 200}
        phases = {"prefill": {"max_reasoning_tokens": 100}, "thinking": {"max_reasoning_tokens": 9000}}
        for number in range(2 * rounds):
            phase = list(phases)[number % 2]
            # Of its own from the first words on: what was read before is not read again.
            context = {"context": f"{number} plums and {words}"} if phase == "prefill" else {}
            job_id = daemon.submit("How many Collatz steps from 27 to 1?", seed=number, **body, **phases[phase], **context).json["job_id"]
            wait_until(lambda: daemon.job(job_id)["phase"] == phase, 30, f"the job is in {phase}")
            time.sleep(CHANCE.uniform(0.05, 0.25))
            seen = daemon.job(job_id)
            check(seen["state"] == "running" and seen["phase"] == phase, f"it is still in {phase}: {seen['state']} {seen['phase']}")
            after = daemon.submit(f"What is {number} + 3?", effort="none", max_answer_tokens=20).json["job_id"]
            took_of.setdefault(phase, []).append(cancel(daemon, job_id)[0])
            began = time.monotonic()
            wait_until(lambda: daemon.job(after)["state"] != "queued", 5, "the next job starts")
            took_of.setdefault(phase + ", next start", []).append(time.monotonic() - began)
            check(daemon.wait_terminal(after, 30)["state"] in ("completed", "incomplete"), "the next job ends")
        audit.audit(daemon.home, " with the bundled model")
    for what, took in took_of.items():
        check(max(took) <= 1, f"bundled model, {what}: {max(took):.2f} s")
        figure(8, f"bundled model, {len(took)} cancels in {what}: at most", f"{max(took) * 1000:.0f} ms", "1000 ms")


print(f"seed {SEED}", flush=True)
if PLANTED == "lost_cancel":
    crossed(4)
elif PLANTED == "deaf_proxy":
    streams(2)
else:
    for part, much in ((latency, size(30, 525)), (crossed, size(15, 75)), (streams, 20), (real_model, size(1, 20))):
        began = time.monotonic()
        part(much)
        print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)
finish("cancel")
