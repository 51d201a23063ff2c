#!/usr/bin/env python3
"""After many jobs of every kind the daemon has the descriptors that it began with, and it stops with
nothing leaked: under AddressSanitizer its end is LeakSanitizer's verdict, and so is its worker's.

Jobs that complete, that are cancelled, streamed or asked for, that fail, chat turns whose client goes
away, requests that are refused, and a worker that is killed in the middle.

P24. Planted: leaks (each start of a job opens a file that stays open, and forgets some memory).
"""
import concurrent.futures
import json
import os
import signal
import time

from profile import figure, size  # first: it knows where harness is
from harness import BIN, PLANTED, TERMINAL, Daemon, UnixConnection, check, finish, planted_sqlite

JOBS = 40 if PLANTED else size(200, 1000)
AT_ONCE = 8
SANITIZED = b"__lsan_do_leak_check" in (BIN / "ponderd").read_bytes()
KINDS = 8


def descriptors(pid):
    """What each descriptor is, without the numbers of sockets and pipes."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}").split(":[")[0])
        except OSError:
            pass
    return sorted(found)


def streamed(daemon, target, body=None, lines=None):
    """Reads so many lines of an event stream, or all, and goes away."""
    connection = UnixConnection(daemon.socket, 60)
    data = json.dumps(body) if body else None
    connection.request("POST" if body else "GET", target, data, {"Content-Type": "application/json"} if body else {})
    for number, _ in enumerate(connection.getresponse()):
        if lines is not None and number >= lines:
            break
    connection.close()


def one(daemon, number):
    """One job; its state, or None for what is no job."""
    kind, task = number % KINDS, f"job {number} "
    if kind == 6:
        streamed(daemon, "/v1/chat/completions", {"stream": True, "messages": [
            {"role": "user", "content": task + "[[stub tokens=200 rate=200]]"}]}, lines=5)
        daemon.call("POST", "/v1/jobs", raw=b'{"task": ')
        daemon.call("GET", "/v1/jobs/none")
        return None
    if kind == 5:
        body = {"task": task + "[[stub fault=exit0 after=3]]"} if number % 40 == 5 else {"task": task, "schema": {"type": 7}}
    elif kind == 4:
        body = {"kind": "ask", "task": task + "[[stub tokens=5 think=2 rate=2000]]"}
    else:
        body = {"task": task + f"[[stub tokens={400 if kind == 3 else 20} think=5 rate={400 if kind == 3 else 4000}]]"}
    reply = daemon.call("POST", "/v1/jobs", body)
    if reply.status != 201:
        return None
    job_id = reply.json["job_id"]
    if kind == 3:
        daemon.call("POST", f"/v1/jobs/{job_id}/cancel")
    if kind == 2:
        streamed(daemon, f"/v1/jobs/{job_id}/events?after=0")
    state = daemon.wait_terminal(job_id)["state"]
    daemon.call("GET", f"/v1/jobs/{job_id}/result?part=partial")
    return state


def main():
    environment = {"ASAN_OPTIONS": "detect_leaks=1:exitcode=23", **planted_sqlite(PLANTED)}
    with Daemon("--engine", "stub", environment=environment) as daemon:
        (daemon.home / "ponder.toml").write_text("max_queued = 2000\nmax_running_batch = 6\nmax_running_interactive = 4\n")
        daemon.start()
        one(daemon, 0)
        pid = daemon.process.pid
        time.sleep(0.5)  # the connections of the first job have gone
        before = descriptors(pid)
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            states = list(pool.map(lambda number: one(daemon, number), range(JOBS // 2)))
            os.kill(daemon.try_health()["engine"]["pid"], signal.SIGKILL)
            states += list(pool.map(lambda number: one(daemon, number), range(JOBS // 2, JOBS)))
        took = time.monotonic() - began
        ended = {state: states.count(state) for state in set(states) if state}
        check(set(ended) <= TERMINAL and ended.get("completed", 0) > JOBS / 4, f"the jobs end: {ended}")
        deadline = time.monotonic() + 5
        while descriptors(pid) != before and time.monotonic() < deadline:
            time.sleep(0.05)
        after = descriptors(pid)
        more = [name for name in set(after) if after.count(name) > before.count(name)]
        check(after == before, f"{len(after) - len(before)} descriptors more than before {JOBS} jobs: {more[:4]}")
        code = daemon.stop()
        log = daemon.log.read_text(errors="replace")
        check(code == 0, f"the daemon ends with {code}, and forgot memory: {'LeakSanitizer: detected' in log}")
        check("Sanitizer" not in log, f"a sanitizer spoke: {[line for line in log.splitlines() if 'Sanitizer' in line][:3]}")
    figure(24, f"descriptors after {JOBS} jobs of the stub, more than before", len(after) - len(before), 0)
    if SANITIZED:
        figure(24, f"leaks at the stop after {JOBS} jobs", log.count("LeakSanitizer: detected"), 0)
    print(f"{JOBS} jobs in {took:.1f} s: {ended}", flush=True)
    finish("leaks")


main()
