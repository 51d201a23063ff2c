#!/usr/bin/env python3
"""Stopping and reading the settings again, under load: SIGTERM with 20 jobs and 200 streams, also when the
worker hears nothing any more; a second SIGTERM; SIGHUP with changed, with broken and with same settings.

With --planted kill_nine the daemon is killed where it should be stopped: streams then end silently.
"""
import json
import pathlib
import re
import signal
import socket
import sqlite3
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import profile

from harness import PLANTED, Daemon, alive, check, cli, finish, http, os, subprocess, time, wait_until

JOBS, STREAMS = 20, 200
CONFIG = "max_running_batch = 20\nmax_running_interactive = 8\nmax_turns_waiting = 300\n"


class Stream(threading.Thread):
    """One raw reader: all bytes until the connection ends."""

    def __init__(self, daemon, request, name):
        super().__init__(daemon=True)
        self.name, self.data, self.problem = name, b"", None
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(str(daemon.socket))
        self.sock.sendall(request)
        self.start()

    def run(self):
        try:
            while piece := self.sock.recv(65536):
                self.data += piece
        except OSError as error:
            self.problem = error
        self.sock.close()

    def text(self):
        """The body, out of its chunks; and whether the chunks came to their end."""
        head, _, body = self.data.partition(b"\r\n\r\n")
        if b"chunked" not in head.lower():
            length = re.search(rb"content-length: (\d+)", head.lower())
            return body, bool(length) and len(body) == int(length.group(1))
        out = b""
        while True:
            size, _, rest = body.partition(b"\r\n")
            if not size or not re.fullmatch(rb"[0-9a-f]+", size):
                return out, False
            count = int(size, 16)
            if count == 0:
                return out, True
            out, body = out + rest[:count], rest[count + 2:]

    def is_closed_explicitly(self):
        """The terminal marker of its kind, or an error that says why there is none."""
        body, whole = self.text()
        if not whole:
            return False
        status = int(self.data[9:12] or 0)
        if status != 200:
            return b'"error"' in body
        events = [event for event in body.decode(errors="replace").split("\n\n") if event.strip() and not event.startswith(":")]
        last = events[-1] if events else ""
        if self.name == "chat":
            return last == "data: [DONE]" or (last.startswith("data: ") and "error" in json.loads(last[6:]))
        return "event: end" in last or "event: error" in last


def request(method, target, body=None):
    data = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return (head + "\r\n").encode() + data


def under_load(daemon, rate):
    """20 jobs, and 200 readers: of their events, and of chat turns that run and that wait."""
    # Jobs first: one that comes behind turns that wait does not start before them.
    jobs = [daemon.submit(f"job {k} [[stub tokens=220 think=20 rate={rate}]]").json["job_id"] for k in range(JOBS)]
    streams = [Stream(daemon, request("POST", "/v1/chat/completions", {
        "stream": True, "messages": [{"role": "user", "content": f"turn {k} [[stub tokens=4000 think=0 rate=50]]"}]}), "chat")
        for k in range(STREAMS - STREAMS // 2)]
    wait_until(lambda: daemon.try_health().get("queue", {}).get("running", 0) >= JOBS + 8, 20, "20 jobs and 8 turns run")
    streams += [Stream(daemon, request("GET", f"/v1/jobs/{jobs[k % JOBS]}/events"), "events") for k in range(STREAMS // 2)]
    wait_until(lambda: sum(bool(s.data) for s in streams) >= STREAMS // 2 + 8, 20, "the streams flow")
    return jobs, streams


def audit(daemon, jobs, streams, what):
    """After the end: every stream closed with a word, no attempt burnt, every job resumed and completed."""
    for stream in streams:
        stream.join(30)
    silent = [s for s in streams if s.is_alive() or not s.is_closed_explicitly()]
    check(not silent, f"{what}: {len(silent)} of {len(streams)} streams ended silently, "
          f"such as {silent[0].name}: {silent[0].data[-160:]!r} {silent[0].problem}" if silent else what)
    with sqlite3.connect(f"file:{daemon.home}/ponder.db?mode=ro", uri=True) as db:
        check(db.execute("pragma integrity_check").fetchone()[0] == "ok", f"{what}: the database is whole")
        burnt = db.execute("select count(*) from job where deaths > 0").fetchone()[0]
    check(burnt == 0, f"{what}: {burnt} attempts were burnt")
    daemon.start()
    resumed = 0
    for job_id in jobs:
        job = daemon.wait_terminal(job_id, 60)
        resumed += check(job["state"] == "completed" and job["attempt"] <= 1,
                         f"{what}: {job_id} is {job['state']}({job['reason']}), attempt {job['attempt']}")
    return len(silent), burnt, resumed


def stopped():
    slowest, silent, burnt, resumed, rounds = 0, 0, 0, 0, profile.size(5, 50)
    for k in range(1 if PLANTED else rounds):
        with Daemon("--engine", "stub") as daemon:
            (daemon.home / "ponder.toml").write_text(CONFIG)
            daemon.start()
            jobs, streams = under_load(daemon, 100)
            time.sleep(0.1 * (k % 4))
            began = time.monotonic()
            if PLANTED == "kill_nine":
                daemon.kill()
            else:
                code = daemon.kill(signal.SIGTERM)
                check(code == 0, f"round {k}: the daemon exits {code}")
            slowest = max(slowest, time.monotonic() - began)
            a, b, c = audit(daemon, jobs, streams, f"round {k}")
            silent, burnt, resumed = silent + a, burnt + b, resumed + c
    check(slowest <= 10, f"a stop took {slowest:.2f} s")
    profile.figure(17, f"{rounds} stops with {JOBS} jobs and {STREAMS} streams: slowest", f"{slowest:.2f} s", "10 s")
    profile.figure(17, "streams that ended silently", silent, 0)
    profile.figure(17, "attempts burnt", burnt, 0)
    profile.figure(17, "jobs that went on after the next start", resumed, rounds * JOBS)


def hung_worker():
    for k in range(profile.size(1, 5)):
        with Daemon("--engine", "stub") as daemon:
            (daemon.home / "ponder.toml").write_text(CONFIG)
            daemon.start()
            jobs, streams = under_load(daemon, 100)
            os.kill(daemon.try_health()["engine"]["pid"], signal.SIGSTOP)
            began = time.monotonic()
            daemon.process.send_signal(signal.SIGTERM)
            code = daemon.process.wait(40)
            took = time.monotonic() - began
            check(code == 0, f"with a hung worker the daemon exits {code}")
            check(took <= 30, f"with a hung worker a stop took {took:.2f} s")
            audit(daemon, jobs, streams, "with a hung worker")
            profile.figure(17, "a stop with a worker that ignores signals", f"{took:.2f} s", "30 s")


def second_signal():
    with Daemon("--engine", "stub") as daemon:
        (daemon.home / "ponder.toml").write_text(CONFIG)
        daemon.start()
        jobs = [daemon.submit(f"job {k} [[stub tokens=200 think=20 rate=200]]").json["job_id"] for k in range(JOBS)]
        wait_until(lambda: daemon.try_health()["queue"]["running"] >= 12, 10, "jobs run")
        worker = daemon.try_health()["engine"]["pid"]
        os.kill(worker, signal.SIGSTOP)  # so that the first one takes its time
        daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        check(daemon.process.poll() is None, "the first SIGTERM waits for the worker")
        began = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        code = daemon.process.wait(10)
        took = time.monotonic() - began
        check(took <= 1, f"the second SIGTERM took {took:.2f} s")
        check(code == 128 + signal.SIGTERM, f"the second SIGTERM exits {code}")
        wait_until(lambda: not alive(worker),
                   5, "the hung worker is gone with its daemon")
        audit(daemon, jobs, [], "after a second SIGTERM")
        profile.figure(17, "the second SIGTERM", f"{took:.2f} s", "1 s, nothing lost")


def settings_again():
    with Daemon("--engine", "stub") as daemon:
        config = daemon.home / "ponder.toml"
        config.write_text("max_queued = 900\nlog_level = \"warn\"\n")
        daemon.start()
        failures, done, over = [], [0], threading.Event()

        def work(k):
            while not over.is_set():
                try:
                    reply = daemon.submit(f"worker {k} number {done[0]} [[stub tokens=3 think=0]]", force_new=True)
                    ok = reply.status == 201 and daemon.wait_terminal(reply.json["job_id"], 20)["state"] == "completed"
                    done[0] += 1
                except (OSError, http.client.HTTPException) as error:
                    ok, reply = False, error
                if not ok:
                    failures.append(str(getattr(reply, "status", reply)))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        chat = Stream(daemon, request("POST", "/v1/chat/completions", {
            "stream": True, "messages": [{"role": "user", "content": "[[stub tokens=150 think=0 rate=60]]"}]}), "chat")
        for thread in threads:
            thread.start()
        for k in range(100):
            config.write_text(f"max_queued = {700 + k}\nlog_level = \"{'info' if k % 2 else 'warn'}\"\n")
            daemon.process.send_signal(signal.SIGHUP)
            time.sleep(0.02)
        wait_until(lambda: daemon.try_health()["queue"]["limit"] == 799, 5, "the last settings are in force")
        config.write_text("max_queued = 5\nmax_qeued = 6\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "max_qeued" in daemon.log.read_text(), 5, "the log names the mistake")
        check(daemon.try_health()["queue"]["limit"] == 799, "settings with a mistake change nothing")
        config.write_text("max_queued = 5\nport = 12345\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: daemon.try_health()["queue"]["limit"] == 5, 5, "mended settings are in force")
        over.set()
        for thread in threads:
            thread.join()
        wait_until(lambda: not chat.is_alive(), 20, "the chat turn ends")
        check(chat.text()[0].rstrip().endswith(b"data: [DONE]"), "a stream goes on through 100 HUPs to its end")
        refused_only = [f for f in failures if f != "429"]  # five places are few for three clients
        check(not refused_only, f"{len(refused_only)} of {done[0]} requests were dropped: {refused_only[:3]}")
        check(daemon.process.poll() is None, "SIGHUP does not end the daemon")
        profile.figure(17, f"requests dropped of {done[0]} during 100 SIGHUPs", len(refused_only), 0)


def log_moved_aside():
    with Daemon() as daemon:
        (daemon.home / "ponder.toml").write_text('engine = "stub"\nport = 0\n')
        check(cli(daemon.home, "start").returncode == 0, "ponder start")
        log = daemon.home / "logs" / "ponderd.log"
        pid = int((daemon.home / "ponderd.lock").read_text())
        log.rename(log.with_suffix(".1"))
        os.kill(pid, signal.SIGHUP)
        wait_until(lambda: log.exists() and "settings read again" in log.read_text(), 5, "the log goes on in a new file")
        check(log.stat().st_mode & 0o777 == 0o600, "that only its owner reads")
        check(cli(daemon.home, "stop").returncode == 0, "ponder stop")


stopped()
if not PLANTED:
    hung_worker()
    second_signal()
    settings_again()
    log_moved_aside()
finish("stop")
