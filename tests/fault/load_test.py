#!/usr/bin/env python3
"""Many waiting clients, and work beside them.

  parked   all of them wait for queued jobs: what a waiter costs in memory, that an idle daemon is idle,
           that each wait comes back at its bound, that a client that goes away changes nothing
  one phase  a job that makes many tokens in one phase wakes a waiter once
  ask beside  asks while a batch job runs: each is answered within 2 s, and the batch job has its text
  load     waits of all lengths, half of their clients killed, beside 50 submitters and 8 streams

P6, P16. Planted: late_waits (a proxy holds every tenth answer to a wait back for half a second),
slow_door (a proxy holds every request back, another changes texts, another program holds the database).
"""
import json
import pathlib
import socket as sockets
import socketserver
import sqlite3
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import PLANTED, Daemon, Mcp, PlantingProxy, UnixConnection, breaches, check, finish, os, wait_until
from profile import ahead_of_others, figure, size, steadied, sync_factor
import audit

WAITS = size(300, 2000)
LOAD_S = 3 if PLANTED else size(6, 300)
BOUNDS = size([0.1, 4], [0.1, 30])
SUBMITTERS, STREAMS = 50, 8
LATE_MS, CPU, KIB, SUBMIT_MS, FIRST_MS, ASK_S = 250, 0.03, 20, 50, 300, 2


class LateProxy(PlantingProxy):
    def exchange(self, handler):
        self.count += 1
        if self.count % 10 == 0:
            time.sleep(0.5)
        super().exchange(handler)


class SlowDoor:
    """Planted: between clients and the daemon, and holds all that they send back for a while."""

    def __init__(self, upstream, seconds):
        self.path = f"{upstream}.slow{seconds}"

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                there = sockets.socket(sockets.AF_UNIX)
                there.connect(str(upstream))
                threading.Thread(target=self.relay, args=(there, self.request, 0), daemon=True).start()
                self.relay(self.request, there, seconds)

            def relay(self, source, target, hold_s):
                try:
                    while data := source.recv(1 << 16):
                        time.sleep(hold_s)
                        target.sendall(data)
                    target.shutdown(sockets.SHUT_WR)
                except OSError:
                    pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads, request_queue_size = True, 256

        threading.Thread(target=Server(self.path, Handler).serve_forever, daemon=True).start()


def waits(socket, **plan):
    """Starts the waiting clients; their report comes from report_of()."""
    plan = {"seed": 6, "again": False, "kill": 0, "still": [], "bounds": BOUNDS, "waits": WAITS, **plan}
    process = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).with_name("wait_client.py")), str(socket)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write(json.dumps(plan) + "\n")
    process.stdin.flush()
    return process


def report_of(process, name):
    report = json.loads(process.communicate(timeout=LOAD_S + 120)[0])
    check(report["bad_count"] == 0, f"{name}: {report['bad_count']} waits went wrong, such as {report['bad'][:2]}")
    check(set(report["statuses"]) <= {"200"}, f"{name}: statuses {report['statuses']}")
    check(report["late_ms"] <= LATE_MS, f"{name}: a wait came back {report['late_ms']:.0f} ms after its bound")
    check(report["early_ms"] <= 20, f"{name}: a wait on a job that did not change came back {report['early_ms']:.0f} ms early")
    return report


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def snapshot(daemon, ids):
    with sqlite3.connect(f"file:{daemon.home}/ponder.db?mode=ro", uri=True) as db:
        marks = ",".join("?" * len(ids))
        return db.execute(f"select id, state, reason, attempt, claims, told, cancel_requested from job where id in ({marks}) "
                          "order by id", ids).fetchall()


def parked(daemon, socket):
    pid = daemon.process.pid
    blocker = daemon.submit("holds the place [[stub prefill_s=3600]]").json["job_id"]
    ask = daemon.call("POST", "/v1/jobs", {"kind": "ask", "task": "an ask [[stub prefill_s=3600]]"}).json["job_id"]
    ids = [daemon.submit(f"waits {n}").json["job_id"] for n in range(20)]
    wait_until(lambda: daemon.job(ask)["state"] == "running", 10, "the ask runs")
    before = snapshot(daemon, ids + [ask])
    quiet = descriptors(pid)
    # Once and away, so that what the allocator keeps for connections is not counted as theirs.
    report_of(waits(daemon.socket, jobs=ids, waits=20, bounds=[0.1, 0.2], seconds=0.1), "warm-up")
    base_kib = rss_kib(pid)
    hold_s = size(4.0, 30.0)
    clients = waits(socket, jobs=ids, still=ids, seconds=size(1, 10), bounds=[hold_s, hold_s + 1])
    wait_until(lambda: descriptors(pid) - quiet >= WAITS, 30, "all waits are there") if not PLANTED else time.sleep(1)
    waiter_kib = (rss_kib(pid) - base_kib) / WAITS
    began, used = time.monotonic(), cpu_s(pid)
    time.sleep(size(2.0, 15.0))
    busy = (cpu_s(pid) - used) / (time.monotonic() - began)
    report = report_of(clients, "parked")
    check(report["answered"] == WAITS, f"{report['answered']} of {WAITS} parked waits were answered")
    # Clients that go away in the middle, also those of an ask, whose id is then not told.
    gone = report_of(waits(daemon.socket, jobs=ids + [ask], still=ids, seconds=0.5, bounds=[1, 2], kill=1.0), "killed") if not PLANTED else None
    wait_until(lambda: descriptors(pid) <= quiet + 1, 5, "connections of clients that went away are closed")
    check(snapshot(daemon, ids + [ask]) == before, "clients that went away changed a job")
    check(waiter_kib < KIB, f"a waiter costs {waiter_kib:.1f} KiB")
    check(busy < CPU, f"an idle daemon with {WAITS} waiters uses {busy:.1%} of a core")
    figure("P6", f"{WAITS} parked waits late, p100, ms", f"{report['late_ms']:.0f}", f"<= {LATE_MS}")
    figure("P6", "idle, of a core", f"{busy:.1%}", f"< {CPU:.0%}")
    figure("P6", "a waiter, KiB", f"{waiter_kib:.1f}", f"< {KIB}")
    figure("P6", "jobs changed by clients that went away", 0 if snapshot(daemon, ids + [ask]) == before else 1, 0)
    if gone:
        check(gone["killed"] > 0.9 * WAITS, f"{gone['killed']} clients went away")
    for job_id in ids + [ask, blocker]:
        daemon.call("POST", f"/v1/jobs/{job_id}/cancel", {})


def one_phase(daemon):
    """# T4, Q00/ouroboros#1423: waiting tools that return on every raw event."""
    tokens, rate = size((1500, 500), (10_000, 200))
    wait_s = size(1.5, 45)
    job_id = daemon.submit(f"one phase [[stub tokens={tokens} rate={rate}]]", effort="none").json["job_id"]
    wait_until(lambda: daemon.job(job_id)["phase"] == "answering", 10, "the job answers")
    mcp = Mcp(daemon.home)
    began = time.monotonic()
    call = mcp.begin("tools/call", {"name": "status", "arguments": {"job_id": job_id, "wait_s": wait_s}})
    job = daemon.job(job_id, wait_s=wait_s)
    took = time.monotonic() - began
    over_mcp = mcp.end(call)["result"]["structuredContent"]
    took_mcp = time.monotonic() - began
    mcp.close()
    made = job["tokens"]["answer"]
    for door, seconds, state in (("HTTP", took, job["state"]), ("MCP", took_mcp, over_mcp["state"])):
        check(state == "running" and wait_s - 0.02 <= seconds <= wait_s + 1,
              f"a wait over {door} within one phase came back after {seconds:.2f} s of {wait_s}, the job is {state}")
    check(made > 100, f"the job made {made} tokens meanwhile")
    figure("P6", f"answers to a wait while {made} tokens came in one phase", 1 if took >= wait_s - 0.02 else "more", 1)
    daemon.call("POST", f"/v1/jobs/{job_id}/cancel", {})


def ask_beside(daemon):
    """Asks one after the other while one batch job runs on."""
    door, reader = ((SlowDoor(daemon.socket, ASK_S + 0.1).path, PlantingProxy(daemon.socket, "corrupt_text").path)
                    if PLANTED else (daemon.socket, daemon.socket))
    asks, tokens = (1, 700) if PLANTED else size((15, 600), (200, 6000))
    task = f"a batch job beside asks [[stub tokens={tokens} think=20 rate=200]]"
    batch = daemon.submit(task, max_answer_tokens=10_000).json["job_id"]
    wait_until(lambda: daemon.job(batch)["phase"] == "answering", 10, "the batch job answers")
    slowest = beside = 0
    for number in range(asks):
        began = time.monotonic()
        ask = daemon.call("POST", "/v1/jobs", {"kind": "ask", "force_new": True,
                                               "task": f"ask {number} [[stub tokens=10 think=5 rate=500]]"}, via=door).json
        job = daemon.wait_terminal(ask["job_id"], 10)
        took = time.monotonic() - began
        slowest = max(slowest, took)
        beside += daemon.job(batch)["state"] == "running"
        check(job["state"] == "completed", f"ask {number} beside a batch job is {job['state']}")
        check(took <= ASK_S, f"ask {number} beside a batch job took {took:.2f} s")
    check(beside == asks, f"the batch job ran beside {beside} of {asks} asks")
    job = daemon.wait_terminal(batch, 60)
    text = daemon.text(batch, "reasoning", via=reader), daemon.text(batch, "answer", via=reader)
    same = (job["state"], job["attempt"]) == ("completed", 1) and text == audit.pure_text(task, tokens, 20)
    check(same, f"the text of a batch job beside {asks} asks is its own: {job['state']} {job['reason']}")
    figure("P16", f"{asks} asks beside a batch job: slowest", f"{slowest:.2f} s", f"<= {ASK_S} s")
    figure("P16", f"text of the batch job beside {asks} asks: changed", 0 if same else 1, 0)


def connected(path):
    """The kernel turns a connect away while its queue is full, as when all the waits begin at once."""
    connection = UnixConnection(path, 30)
    wait_until(lambda: try_connect(connection), 10, "a connection is taken")
    return connection


def try_connect(connection):
    try:
        connection.connect()
        return True
    except BlockingIOError:
        return False


class Load:
    def __init__(self, daemon, socket):
        self.daemon, self.socket = daemon, socket
        self.until = time.monotonic() + LOAD_S
        self.submit_ms, self.first_ms, self.ids, self.errors, self.lock = [], [], [], [], threading.Lock()

    def submitter(self, number):
        """One connection kept alive, a job a second or so."""
        connection = connected(self.socket)
        time.sleep(number / SUBMITTERS)
        count = 0
        while time.monotonic() < self.until:
            count += 1
            body = json.dumps({"task": f"load {self.until} {number} {count} [[stub tokens=5 think=2 rate=5000]]"})
            began = time.monotonic()
            connection.request("POST", "/v1/jobs", body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            data = reply.read()
            took = (time.monotonic() - began) * 1000
            with self.lock:
                self.submit_ms.append(took)
                if reply.status == 201:
                    self.ids.append(json.loads(data)["job_id"])
                else:
                    self.errors.append((reply.status, data[:200]))
            time.sleep(size(1, 2))

    def prober(self):
        """From a submit to the first chunk at its reader."""
        while time.monotonic() < self.until:
            began = time.monotonic()
            connection = connected(self.socket)
            body = {"kind": "ask", "force_new": True, "task": "first chunk [[stub tokens=10 think=5 rate=500]]"}
            connection.request("POST", "/v1/jobs", json.dumps(body), {"Content-Type": "application/json"})
            job = json.loads(connection.getresponse().read())
            if "job_id" not in job:
                self.errors.append(("first chunk", job))
                continue
            connection.request("GET", f"/v1/jobs/{job['job_id']}/events?after=0")
            for line in connection.getresponse():
                if line.startswith(b"event: reasoning"):
                    self.first_ms.append((time.monotonic() - began) * 1000)
                    break
            connection.close()
            time.sleep(size(0.2, 0.8))

    def reader(self, job_id):
        connection = connected(self.socket)
        connection.sock.settimeout(LOAD_S + 60)
        connection.request("GET", f"/v1/jobs/{job_id}/events?after=0")
        for line in connection.getresponse():
            if line.startswith(b"event: error"):
                self.errors.append(("stream", job_id))
            if line.startswith(b"event: end"):
                return


def hold_database(daemon):
    """Planted: another program in the middle of a write."""
    with sqlite3.connect(daemon.home / "ponder.db", timeout=10) as db:
        db.execute("begin immediate")
        time.sleep(1)
        db.rollback()


def under_load(daemon, socket):
    streams = [daemon.submit(f"stream {n} [[stub tokens={int((LOAD_S + BOUNDS[1] + 20) * 20)} think=20 rate=20]]", force_new=True).json["job_id"] for n in range(STREAMS)]
    for job_id in streams:  # from here on their state and phase stay as they are
        wait_until(lambda: daemon.job(job_id)["phase"] == "answering", 10, "a stream answers")
    factor = sync_factor(daemon.home)
    load = Load(daemon, SlowDoor(daemon.socket, 0.7).path if PLANTED else daemon.socket)
    clients = waits(socket, jobs=streams, still=streams, seconds=LOAD_S, again=True, kill=0.5)
    threads = [threading.Thread(target=load.submitter, args=(n,), daemon=True) for n in range(SUBMITTERS)]
    threads += [threading.Thread(target=load.reader, args=(job_id,), daemon=True) for job_id in streams]
    threads += [threading.Thread(target=load.prober, daemon=True)]
    for thread in threads:
        thread.start()
    if PLANTED:
        hold_database(daemon)
    report = report_of(clients, "load")
    check(report["answered"] > WAITS, f"{report['answered']} waits were answered under load")
    for thread in threads:
        if thread not in threads[SUBMITTERS:SUBMITTERS + STREAMS]:
            thread.join(30)
    for job_id in streams:
        state = daemon.job(job_id)["state"]
        check(state in ("running", "completed"), f"stream {job_id} is {state} after its waiters were killed")
        daemon.call("POST", f"/v1/jobs/{job_id}/cancel", {})
    ended = [daemon.wait_terminal(job_id, 30)["state"] for job_id in load.ids[-20:]]
    check(set(ended) == {"completed"}, f"submitted jobs end: {set(ended)}")
    busy = daemon.log.read_text(errors="replace").count("another process holds")
    if not check(len(load.first_ms) > 1, f"first chunks came: {len(load.first_ms)}"):
        return []
    p99 = statistics.quantiles(load.submit_ms, n=100)[98]
    first = statistics.quantiles(load.first_ms, n=100)[98]
    check(not load.errors, f"{len(load.errors)} errors under load, such as {load.errors[:2]}")
    check(busy == 0, f"the database was busy {busy} times")
    check(report["killed"] > report["begun"] / 4, f"{report['killed']} of {report['begun']} clients were killed")
    figure("P16", f"{WAITS} waits at once, late, p100 of {report['answered']}, ms", f"{report['late_ms']:.0f}", f"<= {LATE_MS}")
    figure("P16", "errors and busy databases seen", len(load.errors) + busy, 0)
    return [(f"submit p99 of {len(load.submit_ms)}", p99, SUBMIT_MS * max(factor, sync_factor(daemon.home))),
            (f"first chunk p99 of {len(load.first_ms)}", first, FIRST_MS)]


def start_with(daemon, settings=""):
    daemon.stop()
    (daemon.home / "ponder.toml").write_text("max_connections = 8000\nmax_queued = 100000\n" + settings)
    daemon.start()


def main():
    ahead_of_others()
    with Daemon("--engine", "stub") as daemon:
        if PLANTED != "slow_door":
            start_with(daemon)
            parked(daemon, LateProxy(daemon.socket, PLANTED).path if PLANTED else daemon.socket)
        if not PLANTED:
            one_phase(daemon)
        if PLANTED != "late_waits":
            start_with(daemon, f"max_running_batch = {STREAMS + 2}\nmax_running_interactive = 4\n")
            ask_beside(daemon)
            for what, ms, most in steadied(lambda: under_load(daemon, daemon.socket)):
                check(ms <= most, f"{what} is {ms:.0f} ms")
                figure("P16", f"{what}, ms", f"{ms:.0f}", f"<= {most:.0f}")
    if PLANTED == "slow_door":
        found = [word for word in ("submit p99", "first chunk p99", "was busy", "beside a batch job took", "is its own")
                 if any(word in breach for breach in breaches)]
        check(len(found) < 5, f"each bound of P16 is seen broken: {found}")
    finish("load")


main()
