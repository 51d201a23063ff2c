#!/usr/bin/env python3
"""The worker process: what it is kept from, what becomes of jobs when it ends in each way that it can,
and how soon the next one works.

--planted inherited_lock puts a worker in place that has the daemon's lock file open.
"""
import pathlib
import shutil
import signal
import sqlite3
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import profile

from harness import BIN, PLANTED, Daemon, check, cli, finish, os, subprocess, threading, time, wait_until

LONG = "[[stub tokens=100000 think=0 rate=200]]"


def engine(daemon):
    return daemon.try_health().get("engine", {})


def status_of(pid):
    with open(f"/proc/{pid}/status") as status:
        return dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)


def limit_of(pid, name):
    with open(f"/proc/{pid}/limits") as limits:
        line = next(line for line in limits if line.startswith(name))
    return line[len(name):].split()[:2]


def program_dir(script):
    """A directory with the programs, where ponder-engine is this shell script ($REAL is the real one)."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="ponder-bin-"))
    for name in ("ponderd", "ponder"):
        shutil.copy(BIN / name, top / name)
    (top / "ponder-engine").write_text(f"#!/bin/sh\nREAL={BIN}/ponder-engine\n{script}\n")
    (top / "ponder-engine").chmod(0o755)
    return top


# --- what it is kept from ------------------------------------------------------------------------


def limits():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        job = daemon.submit(LONG).json["job_id"]  # so that nothing is idle
        wait_until(lambda: daemon.job(job)["state"] == "running", 10, "a job runs")
        pid = engine(daemon)["pid"]
        status = status_of(pid)
        check(status["NoNewPrivs"] == "1", f"the worker may gain privileges: {status['NoNewPrivs']}")
        check(status["Seccomp"] == "2", f"no filter keeps the worker from the network: {status['Seccomp']}")
        adjusted = pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text().strip()
        check(adjusted == "500", f"the worker's oom_score_adj is {adjusted}")
        daemon_adjusted = pathlib.Path(f"/proc/{daemon.process.pid}/oom_score_adj").read_text().strip()
        check(int(daemon_adjusted) < 500, f"the daemon's oom_score_adj is {daemon_adjusted}")
        for who in (pid, daemon.process.pid):
            check(limit_of(who, "Max core file size") == ["0", "0"], f"process {who} may leave a core file")
        check(int(limit_of(pid, "Max open files")[1]) <= 1024, "the worker's open files are bounded")
        if "TSAN_OPTIONS" not in os.environ and "ASAN_OPTIONS" not in os.environ:
            check(limit_of(pid, "Max data size")[1] != "unlimited", "the worker's memory is bounded")
        check(cli(daemon.home, "cancel", job).returncode == 0, "the job is cancelled")
    with Daemon("--engine", "stub") as daemon:
        (daemon.home / "ponder.toml").write_text("worker_memory_mib = 256\n")
        daemon.start()
        if "TSAN_OPTIONS" not in os.environ and "ASAN_OPTIONS" not in os.environ:
            said = limit_of(engine(daemon)["pid"], "Max data size")
            check(said == [str(256 << 20)] * 2, f"the setting holds: {said}")


def descriptors(program=BIN / "ponderd", home=None):
    """Nothing of the daemon's is open in the worker: no lock, no database, no listening socket, no client."""
    with Daemon("--engine", "stub", program=program, home=home) as daemon:
        daemon.start()
        job = daemon.submit(LONG).json["job_id"]
        reader = threading.Thread(target=lambda: daemon.call("GET", f"/v1/jobs/{job}/events"), daemon=True)
        reader.start()
        wait_until(lambda: daemon.job(job)["state"] == "running", 10, "a job runs")
        first = engine(daemon)["pid"]
        os.kill(first, signal.SIGKILL)  # the next one is started beside open connections
        wait_until(lambda: engine(daemon).get("pid") not in (None, first) and daemon.job(job)["phase"] == "answering",
                   20, "it runs again")
        pid = engine(daemon)["pid"]
        held = {}
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                held[int(entry.name)] = os.readlink(entry)
            except OSError:
                pass
        home = str(daemon.home)
        own_log = {1, 2}  # the daemon's stderr, which is the log of both
        wrong = {fd: to for fd, to in held.items() if fd not in own_log and to.startswith(home)}
        check(not wrong, f"the worker holds files of the daemon: {wrong}")
        sockets = [to for to in held.values() if to.startswith("socket:")]
        check(len(sockets) == 1, f"the worker holds {len(sockets)} sockets, not the one to the daemon: {held}")
        check(set(held) == {0, 1, 2, 3}, f"the worker has descriptors {held}")
        profile.figure(12, "descriptors of the daemon that the worker holds", len(wrong) + len(sockets) - 1, 0)
        daemon.call("POST", f"/v1/jobs/{job}/cancel", {})


# --- each way to end -----------------------------------------------------------------------------


def run_beside(daemon, marker, beside=5):
    """A job with this marker, and others beside and behind it; its end and theirs."""
    bad = daemon.submit(f"bad {marker}").json["job_id"]
    others = [daemon.submit(f"other {k} [[stub tokens=20 think=2 rate=2000]]").json["job_id"] for k in range(beside)]
    end = daemon.wait_terminal(bad, 60)
    for other in others:
        job = daemon.wait_terminal(other, 60)
        check(job["state"] == "completed", f"beside {marker} another job is {job['state']}({job['reason']})")
    return end


def classes():
    with Daemon("--engine", "stub") as daemon:
        (daemon.home / "ponder.toml").write_text("max_running_batch = 3\n")
        daemon.start()
        before = engine(daemon)["restarts"]
        end = run_beside(daemon, "[[stub tokens=50 think=0 rate=500]] [[stub fault=crash after=20]]")
        check((end["state"], end["reason"], end["attempt"]) == ("failed", "poison", 3),
              f"a job that kills the engine: {end['state']}({end['reason']}) after {end['attempt']}")
        wait_until(lambda: engine(daemon)["restarts"] == before + 3, 5, "three workers died of it, and three were started")
        check("Aborted" in engine(daemon)["last_error"], f"/health says of what: {engine(daemon)['last_error']}")

        # An output that has no end: whoever ran in this worker has none, so nobody does.
        end = run_beside(daemon, "[[stub tokens=50 think=0 rate=500]] [[stub fault=exit0 after=20]]", beside=0)
        check((end["state"], end["reason"]) == ("incomplete", "stream_lost"), f"exit 0: {end['state']}({end['reason']})")
        check("code 0" in engine(daemon)["last_error"], f"/health says so: {engine(daemon)['last_error']}")

        end = run_beside(daemon, "[[stub tokens=50 think=0 rate=500]] [[stub fault=out_of_memory after=20]]")
        check((end["state"], end["reason"]) == ("failed", "out_of_memory"), f"no memory: {end['state']}({end['reason']})")
        with sqlite3.connect(f"file:{daemon.home}/ponder.db?mode=ro", uri=True) as db:
            claims = db.execute("select claims from job where id = ?", [end["job_id"]]).fetchone()[0]
        check((claims, end["attempt"]) == (2, 1), f"without memory a job is tried once more, it was {claims} times")

        burnt = end["attempt"] - 1
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP) * profile.size(1, 10):
            job = daemon.submit(f"killed {number} [[stub tokens=60 think=0 rate=200]]", force_new=True).json["job_id"]
            wait_until(lambda: daemon.job(job)["phase"] == "answering", 10, "the job answers")
            killed = engine(daemon)["pid"]
            os.kill(killed, number)
            end = daemon.wait_terminal(job, 30)
            check((end["state"], end["attempt"]) == ("completed", 1),
                  f"killed from outside by {number}: {end['state']}({end['reason']}), attempt {end['attempt']}")
            burnt += end["attempt"] - 1
            check("from outside" in engine(daemon)["last_error"], f"/health says so: {engine(daemon)['last_error']}")
    profile.figure(7, "attempts counted for kills from outside and lost memory", burnt, 0)


def device_lost():
    """7a row 13, ollama#5464: the device went away; held, said, and no attempt counted."""
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        # Its tokens come again and with them the loss, until it is cancelled: the pauses double from 1 s.
        job = daemon.submit("[[stub tokens=100 think=0 rate=2000]] [[stub fault=device_lost after=10]]").json["job_id"]
        began, lost, restarts = time.monotonic(), [], 0
        while len(lost) < profile.size(2, 5) and time.monotonic() - began < 60:
            health = daemon.try_health()
            if health["engine"]["restarts"] > restarts:
                restarts = health["engine"]["restarts"]
                lost.append(time.monotonic())
            if not health["engine"]["pid"] and restarts:
                check(health["state"] == "failed" and "lost its device" in health["reason"],
                      f"/health is truthful: {health['state']} {health['reason']}")
                check("trying again in" in health["reason"], f"and says what is done: {health['reason']}")
            time.sleep(0.02)
        pauses = [round(after - before, 1) for before, after in zip([began] + lost, lost)]
        for k, pause in enumerate(pauses):
            check(pause >= 2 ** k * 0.9, f"pause {k + 1} after a lost device is {pause} s")
        now = daemon.job(job)
        check(now["state"] in ("queued", "running") and now["attempt"] <= 1,
              f"a lost device costs no attempt: {now['state']} {now['attempt']}")
        more = daemon.submit("meanwhile")
        check(more.status == 201, f"a job is accepted meanwhile: {more.status}")
        check(cli(daemon.home, "cancel", job).returncode == 0, "it can be cancelled meanwhile")
        check(daemon.wait_terminal(more.json["job_id"], 40)["state"] == "completed", "the other one runs when it is back")
        profile.figure(7, "pauses between workers after a lost device", "/".join(map(str, pauses)) + " s", "1 s doubling to 5 min")


OOM_KILLER = "the OOM killer: the worker goes, the job"


def memory_group():
    """A control group of our own and the file of its limit, of either version; OSError: there is none."""
    name = f"ponder-test-{os.getpid()}"
    if pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
        top, limit = pathlib.Path("/sys/fs/cgroup"), "memory.max"
        (top / "cgroup.subtree_control").write_text("+memory")
    else:
        top, limit = pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    group = top / name
    group.mkdir()
    if not (group / limit).exists():
        group.rmdir()
        raise OSError(f"{group} has no {limit}")
    if (group / "memory.swap.max").exists():
        (group / "memory.swap.max").write_text("0")
    return group, group / limit


def out_of_memory_kill():
    """The system's OOM killer, in a memory group of our own, where that can be made."""
    try:
        group, limit_file = memory_group()
    except OSError as error:
        profile.figure(7, OOM_KILLER, f"not run: {error}", "completed")
        return
    try:
        with Daemon("--engine", "stub") as daemon:
            daemon.start()
            pid = engine(daemon)["pid"]
            (group / "cgroup.procs").write_text(str(pid))
            limit_file.write_text(str(48 << 20))
            time.sleep(2)  # the daemon looks once a second where its worker is
            job = daemon.submit("[[stub tokens=400 think=0 rate=200]]").json["job_id"]
            wait_until(lambda: daemon.job(job)["phase"] == "answering", 10, "the job answers")
            daemon.call("POST", "/v1/tokenize", {"text": "x" * (25 << 20)})  # more than fits beside it
            wait_until(lambda: "out of memory" in (engine(daemon).get("last_error") or ""), 20,
                       f"/health names the OOM killer: {engine(daemon).get('last_error')}")
            end = daemon.wait_terminal(job, 30)
            check((end["state"], end["attempt"]) == ("completed", 1),
                  f"a job beside it: {end['state']}({end['reason']}), attempt {end['attempt']}")
            check(daemon.process.poll() is None, "the daemon outlives its worker")
            profile.figure(7, OOM_KILLER, end["state"], "completed")
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text().split(), 5, "the group is empty")
        group.rmdir()


# --- how soon ------------------------------------------------------------------------------------


def next_job():
    """7a row 4, solid_queue#751: a worker that is gone is noticed and replaced."""
    with Daemon("--engine", "stub") as daemon:
        began = time.monotonic()
        daemon.start()
        load = time.monotonic() - began
        slowest = 0
        for k in range(profile.size(12, 50)):
            pid = wait_until(lambda: engine(daemon).get("pid"), 20, "a worker is there")
            os.kill(pid, signal.SIGKILL)
            began = time.monotonic()
            job = daemon.submit(f"after kill {k} [[stub tokens=3 think=0]]").json["job_id"]
            end = daemon.wait_terminal(job, 30)
            took = time.monotonic() - began
            slowest = max(slowest, took)
            check(end["state"] == "completed", f"job {k} after a kill is {end['state']}({end['reason']})")
        check(slowest <= 2 + load, f"a job after a kill took {slowest:.2f} s, load is {load:.2f} s")
        profile.figure(18, "the next job ends after a kill of the worker", f"{slowest:.2f} s", f"2 s + load ({load:.2f} s)")
        # Kills alone, with no work between them, are no crash loop: it is back each time.
        slowest = 0
        for _ in range(profile.size(4, 50)):
            pid = engine(daemon)["pid"]
            os.kill(pid, signal.SIGKILL)
            began = time.monotonic()
            wait_until(lambda: engine(daemon).get("pid") not in (None, pid) and daemon.try_health()["state"] == "ready",
                       10, "the worker is back")
            slowest = max(slowest, time.monotonic() - began)
        check(slowest <= 2 + load, f"the worker was back after {slowest:.2f} s")
        profile.figure(18, "the worker is back after a kill", f"{slowest:.2f} s", f"2 s + load ({load:.2f} s)")


def deaths_while_loading():
    """A worker that dies each time it loads is not started a thousand times."""
    top = program_dir('date +%s.%N >>"$(dirname "$0")/starts"; exit 3')
    try:
        with Daemon("--engine", "stub", program=top / "ponderd") as daemon:
            daemon.start(wait_ready=False)
            wait_until(lambda: daemon.try_health().get("state") == "failed", 20, "it is given up")
            starts = len((top / "starts").read_text().split())
            check(starts == 5, f"{starts} starts of an engine that cannot load")
            reason = daemon.try_health()["reason"]
            check("5 times in a row while loading" in reason and "code 3" in reason, f"the reason: {reason}")
            profile.figure(18, "starts of an engine that dies while loading", starts, 5)
    finally:
        shutil.rmtree(top)


if PLANTED == "inherited_lock":
    # A daemon that lets its lock file leak: the worker would hold the lock beyond the daemon's end.
    leaky = tempfile.mkdtemp(prefix="ponder-e2e-")
    bin_dir = program_dir(f'exec 9<"{leaky}/ponderd.lock"; exec $REAL "$@"')
    descriptors(bin_dir / "ponderd", leaky)
    shutil.rmtree(bin_dir)
    shutil.rmtree(leaky)
else:
    limits()
    descriptors()
    classes()
    device_lost()
    out_of_memory_kill()
    next_job()
    deaths_while_loading()
finish("worker")
