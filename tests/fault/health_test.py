#!/usr/bin/env python3
"""/health against what was really done: the worker dead, hung, looping, loading, slow, its device lost; the
disk full; the database held by somebody else. Readiness follows within its bound, the daemon itself answers
all the time, and clients of other jobs notice nothing.

The loop that serves the sockets stuck: nobody is answered, and the daemon ends itself, to be started anew.

With --planted always_ready the prober asks through a proxy that always says ready; with deaf_watchdog the
daemon watches nothing.
"""
import contextlib
import ctypes
import pathlib
import shutil
import signal
import sqlite3
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import profile

from harness import BIN, PLANTED, Daemon, Mcp, check, cli, door, finish, http, os, subprocess, threading, time, wait_until

READY = ("ready", "busy")


class Prober:
    """Asks /health every 20 ms: what it said when, and the longest silence."""

    def __init__(self, daemon):
        self.daemon, self.via = daemon, door(daemon)
        self.seen, self.slowest, self.failures, self.over = [], 0, 0, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over:
            began = time.monotonic()
            try:
                reply = self.daemon.call("GET", "/health", timeout=10, via=self.via)
                self.seen.append((time.monotonic(), reply.status, reply.json))
            except (OSError, http.client.HTTPException, ValueError):
                self.failures += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            time.sleep(0.02)

    def after(self, began, seconds, wanted, what):
        """Seconds from `began` until a health that `wanted` takes; a breach if there is none in time."""
        end = began + seconds
        at = 0
        while True:
            seen = self.seen
            while at < len(seen):
                when, status, health = seen[at]
                if when >= began and wanted(status, health):
                    return when - began
                at += 1
            if time.monotonic() > end:
                last = self.seen[-1][2] if self.seen else {}
                check(False, f"not within {seconds} s: {what}; /health says {last.get('state')} ({last.get('reason')})")
                return seconds
            time.sleep(0.02)

    def close(self):
        self.over = True
        self.thread.join()
        check(self.failures == 0, f"/health did not answer {self.failures} times")
        check(self.slowest < 1, f"/health took {self.slowest:.2f} s: the daemon is alive and says so at once")


class Client:
    """Goes on submitting small jobs and turns; every one must end well whatever happens to the worker."""

    def __init__(self, daemon):
        self.daemon, self.done, self.errors, self.over = daemon, 0, [], False
        self.idle = threading.Lock()  # held while a job of its is under way
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        number = 0
        while not self.over:
            number += 1
            with self.idle:
                self.one(number)
            time.sleep(0.05)

    def one(self, number):
        try:
            reply = self.daemon.submit(f"client {number} [[stub tokens=10 think=2 rate=2000]]")
            if reply.status != 201:
                self.errors.append(f"submit {reply.status} {reply.body[:100]}")
                return
            job = self.daemon.wait_terminal(reply.json["job_id"], 60)
            if job["state"] != "completed":
                self.errors.append(f"{job['state']}({job['reason']})")
            self.done += 1
        except (OSError, http.client.HTTPException) as error:
            self.errors.append(str(error))

    def close(self, what):
        self.over = True
        self.thread.join()
        check(self.done > 0, "the client of other jobs got something done")
        check(not self.errors, f"{what}: the client of other jobs saw {len(self.errors)} errors: {self.errors[:3]}")
        return len(self.errors)


def is_ready(status, health):
    return status == 200 and health["state"] in READY


def worker_of(daemon):
    return daemon.try_health()["engine"]["pid"]


def said_by_the_command(daemon, state):
    """`ponder health` while /health says `state`, before and after: it says so too, and exits 3."""
    for _ in range(20):
        before, shown, after = daemon.try_health(), cli(daemon.home, "health"), daemon.try_health()
        if (before["state"], before["engine"]["restarts"]) == (state, after["engine"]["restarts"]) and after["state"] == state:
            break
        time.sleep(0.1)
    else:
        return check(False, f"/health did not stay {state} for one call of ponder health")
    check(shown.returncode == 3, f"ponder health exits {shown.returncode} while /health says {state}")
    return check(state in shown.stdout, f"ponder health says it is {state}: {shown.stdout}")


def dead_and_hung():
    with Daemon("--engine", "stub") as daemon:
        (daemon.home / "ponder.toml").write_text("stall_s = 4\nmax_running_batch = 4\n")
        began = time.monotonic()
        daemon.start()
        load = time.monotonic() - began
        prober, client = Prober(daemon), Client(daemon)
        try:
            slowest_change = slowest_back = 0
            for _ in range(profile.size(3, 20)):  # dead
                pid = wait_until(lambda: worker_of(daemon), 10, "a worker")
                restarts = daemon.try_health()["engine"]["restarts"]
                began = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                change = prober.after(began, 2, lambda s, h: s == 503 or h["engine"]["restarts"] > restarts,
                                      "a dead worker is told")
                back = prober.after(began, 2 + load, lambda s, h: is_ready(s, h) and h["engine"]["restarts"] > restarts,
                                    "the worker is back")
                slowest_change, slowest_back = max(slowest_change, change), max(slowest_back, back)
                check("signal 9" in (daemon.try_health()["engine"]["last_error"] or ""), "it says what ended the worker")
            profile.figure(18, "worker dead: /health tells", f"{slowest_change:.2f} s", "2 s")
            profile.figure(18, "worker dead: back", f"{slowest_back:.2f} s", f"2 s + load ({load:.2f} s)")

            # T43, llama.cpp#13281: a worker that hangs is no healthy worker.
            # What runs in it then is the hung job itself (incomplete(stalled)); the client's come after.
            pid = worker_of(daemon)
            with client.idle:
                began = time.monotonic()
                os.kill(pid, signal.SIGSTOP)
            hung = prober.after(began, 6 if PLANTED else 30, lambda s, h: s == 503 and h["state"] == "stalled", "a hung worker is told")
            if not PLANTED:
                said_by_the_command(daemon, "stalled")
            back = prober.after(began, 4 + 3 + load, lambda s, h: is_ready(s, h) and h["engine"]["pid"] != pid, "it is replaced")
            profile.figure(18, "worker hung: /health says stalled", f"{hung:.2f} s", "30 s")
            profile.figure(18, "worker hung: replaced, with stall_s = 4", f"{back:.2f} s", "4 s + 3 s")
            if not PLANTED:
                sick_jobs(daemon)
        finally:
            prober.close()
        profile.figure(18, "errors that clients of other jobs saw", client.close("dead, hung, looping"), 0)


def sick_jobs(daemon):
    hang = daemon.submit("[[stub tokens=50 think=0 rate=200]] [[stub fault=hang after=20]]").json["job_id"]
    loop = daemon.submit("[[stub tokens=9000 think=0 rate=3000]] [[stub fault=loop after=20]]").json["job_id"]
    for job_id, wanted in ((loop, ("incomplete", "repetition")), (hang, ("incomplete", "stalled"))):
        job = daemon.wait_terminal(job_id, 30)
        check((job["state"], job["reason"]) == wanted, f"{wanted}: {job['state']}({job['reason']})")


def device_lost():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        prober, client = Prober(daemon), Client(daemon)
        began = time.monotonic()
        bad = daemon.submit("[[stub tokens=100 think=0 rate=2000]] [[stub fault=device_lost after=10]]").json["job_id"]
        told = prober.after(began, 2, lambda s, h: s == 503 and h["state"] == "failed" and "lost its device" in h["reason"],
                            "a lost device is told")
        # T43: submit is queued by policy, and every door says why nothing runs.
        reply = daemon.submit("while it is gone")
        check(reply.status == 201 and reply.json["state"] == "queued", f"a job is queued meanwhile: {reply.status}")
        said_by_the_command(daemon, "failed")
        prober.after(began, 10, lambda s, h: s == 503 and h["state"] == "failed" and "trying again in" in h["reason"],
                     "what is done about it is told")
        daemon.call("POST", f"/v1/jobs/{bad}/cancel", {})
        began = time.monotonic()
        prober.after(began, 20, is_ready, "it is ready when the device is back")
        check(daemon.wait_terminal(reply.json["job_id"], 30)["state"] == "completed", "the queued job completes")
        prober.close()
        profile.figure(18, "device lost: /health tells", f"{told:.2f} s", "2 s")
        profile.figure(18, "device lost: errors of other clients", client.close("device lost"), 0)


def loading():
    top = pathlib.Path(tempfile.mkdtemp(prefix="ponder-bin-"))
    shutil.copy(BIN / "ponderd", top / "ponderd")
    (top / "ponder-engine").write_text(f'#!/bin/sh\nsleep 2\nexec {BIN}/ponder-engine "$@"\n')
    (top / "ponder-engine").chmod(0o755)
    try:
        with Daemon("--engine", "stub", program=top / "ponderd") as daemon:
            began = time.monotonic()
            daemon.start(wait_ready=False)
            wait_until(daemon.socket.exists, 10, "the socket is there")
            prober = Prober(daemon)
            prober.after(began, 2, lambda s, h: s == 503 and h["state"] == "loading", "loading is told")
            prober.after(began, 6, lambda s, h: h["state"] == "loading" and "so far" in h["reason"], "and for how long")
            back = prober.after(began, 10, is_ready, "ready once it is loaded")
            check(back > 1.9, f"ready after {back:.2f} s, before the model was there")
            prober.close()
    finally:
        shutil.rmtree(top)


def slow():
    """7a row 12, WSL#11050: memory that is paged makes no error, only a tenth of the speed."""
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        prober = Prober(daemon)
        usual = daemon.submit("[[stub tokens=150 think=0 rate=100]]").json["job_id"]
        check(daemon.wait_terminal(usual, 20)["state"] == "completed", "a job at the usual speed")
        check(daemon.try_health()["degraded"] == [], "nothing is degraded at the usual speed")
        began = time.monotonic()
        job = daemon.submit("[[stub tokens=2000 think=0 rate=10]]").json["job_id"]
        told = prober.after(began, 30, lambda s, h: h["degraded"] == ["slow"] and s == 200, "a tenth of the speed is told")
        health = daemon.try_health()
        check(health["engine"]["tokens_per_s"] < 20 and health["engine"]["usual_tokens_per_s"] > 70,
              f"with both speeds: {health['engine']}")
        check(cli(daemon.home, "health").returncode == 0, "it can be used all the same")
        check(cli(daemon.home, "health", "--strict").returncode == 3, "but not for ponder health --strict")
        mcp = Mcp(daemon.home)
        check("slow" in mcp.tool("health")["content"][0]["text"], "and over MCP")
        mcp.close()
        daemon.call("POST", f"/v1/jobs/{job}/cancel", {})
        prober.close()
        profile.figure(18, "a tenth of the speed: degraded slow", f"{told:.1f} s", "30 s")


@contextlib.contextmanager
def small_disk():
    """A directory on a disk of 4 MiB; where none can be made, None, and it says so."""
    path = tempfile.mkdtemp(prefix="ponder-e2e-")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", path], capture_output=True)
    if made.returncode != 0:
        print(f"not run: a full disk, since no small one can be mounted here ({made.stderr.decode().strip()})", flush=True)
    try:
        yield path if made.returncode == 0 else None
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", "-l", path])
        os.rmdir(path)


def disk_full():
    with small_disk() as home:
        if not home:
            return
        with Daemon("--engine", "stub", home=home) as daemon:
            daemon.start()
            prober = Prober(daemon)
            job = daemon.submit("[[stub tokens=100000 think=0 rate=2000]]").json["job_id"]
            wait_until(lambda: daemon.job(job)["phase"] == "answering", 10, "a job writes")
            ballast = pathlib.Path(home) / "ballast"
            began = time.monotonic()
            with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            full = time.monotonic()
            told = prober.after(began, 2 + full - began, lambda s, h: s == 503 and h["state"] == "failed" and not h["store"]["ok"],
                                "a full disk is told")
            check(daemon.submit("on a full disk").status in (503, 507), "no job is taken on a full disk")
            ballast.unlink()
            began = time.monotonic()
            back = prober.after(began, 5, is_ready, "ready when there is room again")
            check(daemon.submit("with room [[stub tokens=3]]").status == 201, "and jobs are taken")
            daemon.call("POST", f"/v1/jobs/{job}/cancel", {})
            prober.close()
            profile.figure(18, "disk full: /health tells", f"{told:.2f} s", "2 s")
            profile.figure(18, "room again: ready", f"{back:.2f} s", "5 s")


def database_held():
    """Another program holds the database's write lock: what is known is shown all the same."""
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        known = daemon.submit("[[stub tokens=3]]").json["job_id"]
        daemon.wait_terminal(known, 20)
        prober = Prober(daemon)
        other = sqlite3.connect(daemon.home / "ponder.db", isolation_level=None)
        other.execute("begin immediate")
        began = time.monotonic()
        replies = []
        submit = threading.Thread(target=lambda: replies.append(daemon.submit("waits [[stub tokens=3]]")))
        submit.start()
        told = prober.after(began, 2, lambda s, h: s == 503 and h["state"] in ("stalled", "failed"), "a stuck queue is told")
        slowest, looks = 0, 0
        while time.monotonic() < began + profile.size(1.5, 10):
            asked = time.monotonic()
            reply = daemon.call("GET", f"/v1/jobs/{known}")
            slowest, looks = max(slowest, (time.monotonic() - asked) * 1000), looks + 1
            check(reply.status == 200 and reply.json["state"] == "completed", f"a job is shown meanwhile: {reply.status}")
            time.sleep(0.05)
        check(slowest < 200 * profile.sync_factor(), f"a job was shown after {slowest:.0f} ms while the database was held")
        other.execute("rollback")
        other.close()
        began = time.monotonic()
        back = prober.after(began, 5, is_ready, "ready when the database is free")
        submit.join(20)
        check(replies and replies[0].status in (201, 503), f"the submit was answered: {[r.status for r in replies]}")
        if replies and replies[0].status == 503:
            error = replies[0].json["error"]
            check(error["code"] == "loading" and error["hint"], f"it says why, and what to do: {error}")
            check("Retry-After" in replies[0].headers, "and when to try again")
        if replies and replies[0].status == 201:
            check(daemon.wait_terminal(replies[0].json["job_id"], 10)["state"] == "completed", "and its job completes")
        prober.close()
        profile.figure(18, "database held: /health tells", f"{told:.2f} s", "2 s")
        profile.figure(18, f"database held: slowest of {looks} looks at a job", f"{slowest:.0f} ms", "200 ms")
        profile.figure(18, "database free again: ready", f"{back:.2f} s", "5 s")


class HeldThread:
    """The thread of a child that serves its sockets, the one that waits in epoll, stopped alone."""
    SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
    EPOLL_WAIT = ("232", "281", "22", "441")  # and epoll_pwait, on x86-64 and arm64

    def __init__(self, pid):
        self.ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.thread = wait_until(lambda: self.find(pid), 5, "a thread waits in epoll")
        for request in (self.SEIZE, self.INTERRUPT):
            if self.ptrace(request, self.thread, None, None) != 0:
                raise OSError(ctypes.get_errno(), "a child's thread cannot be stopped")
        os.waitpid(self.thread, self.WALL)

    def find(self, pid):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/syscall") as call:
                if call.read().split()[0] in self.EPOLL_WAIT:
                    return int(task)
        return None

    def bury(self):
        """Once its process has ended, which waits for this. False: it lives."""
        return os.waitpid(self.thread, self.WALL | os.WNOHANG)[0] != 0


def stuck_loop():
    """The thread of the sockets does not move, as in a handler that never ends."""
    bound = profile.size(2, 30)
    with Daemon("--engine", "stub") as daemon:
        (daemon.home / "ponder.toml").write_text(f"watchdog_s = {0 if PLANTED else bound}\n")
        daemon.start()
        job = daemon.submit("goes on [[stub tokens=2000 think=0 rate=500]]").json["job_id"]
        held = HeldThread(daemon.process.pid)
        began = time.monotonic()
        gone = wait_until(held.bury, 60 if profile.FULL else bound + 5, "a stuck loop is noticed")
        noticed = time.monotonic() - began
        if not gone:
            os.kill(daemon.process.pid, signal.SIGKILL)
            wait_until(held.bury, 10, "a killed daemon is gone")
            return
        check(daemon.process.wait(10) == 1, f"it ends as one that failed: {daemon.process.returncode}")
        check(noticed >= bound - 0.5, f"it was given {noticed:.1f} s only, of {bound}")
        check("sockets were not served" in daemon.log.read_text(), "and says why")
        daemon.start()
        end = daemon.wait_terminal(job, 30)
        check((end["state"], end["attempt"]) == ("completed", 1), f"its job goes on: {end['state']}, attempt {end['attempt']}")
        profile.figure(18, f"the loop of the sockets stuck, watchdog_s = {bound}: the daemon ends after", f"{noticed:.1f} s", "60 s")

        # A daemon that was stopped for longer is not stuck.
        os.kill(daemon.process.pid, signal.SIGSTOP)
        time.sleep(bound + 1)
        os.kill(daemon.process.pid, signal.SIGCONT)
        time.sleep(1)
        check(daemon.try_health().get("state") in READY, "who was stopped for long goes on")


def tracers(pid):
    return [next(line for line in (task / "status").read_text().splitlines() if line.startswith("TracerPid"))
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]


def stuck_in_a_sync():
    """The queue's thread stuck in one write: a sync that takes seconds, as on a disk that hangs."""
    hangs = profile.size(2.5, 10)
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        pid = daemon.process.pid
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", daemon.home / "ponder.db-wal", "-e", "trace=fdatasync",
                  "-e", f"inject=fdatasync:delay_enter={int(hangs * 1e6)}:when=1", "-p", str(pid)]
        try:
            slow = subprocess.Popen(strace, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        except FileNotFoundError:
            return print("not run: a sync that hangs, since there is no strace", flush=True)
        traced = lambda: slow.poll() is not None or all(not line.endswith("\t0") for line in tracers(pid))
        wait_until(traced, 10, "strace holds the daemon")
        if slow.poll() is not None:
            return print(f"not run: a sync that hangs, since nothing can be traced here ({slow.stderr.read().strip()})", flush=True)
        prober = Prober(daemon)
        began = time.monotonic()
        replies = []
        submit = threading.Thread(target=lambda: replies.append(daemon.submit("waits [[stub tokens=3]]")))
        submit.start()
        told = prober.after(began, 2, lambda s, h: s == 503 and h["state"] == "stalled" and "has not answered" in h["reason"],
                            "a write that does not end is told")
        check(not replies, "and the job is not told before it is on the disk")
        submit.join(hangs + 10)
        answered = time.monotonic()
        check(answered - began > hangs, f"the sync hung for {answered - began:.2f} s only")
        check(replies and replies[0].status == 201, f"the submit was answered then: {[r.status for r in replies]}")
        back = prober.after(answered, 2, is_ready, "ready when the write has ended")
        slow.send_signal(signal.SIGINT)
        slow.wait(10)
        check(daemon.wait_terminal(replies[0].json["job_id"], 20)["state"] == "completed", "and its job completes")
        prober.close()
        profile.figure(18, "a sync that hangs: /health says stalled", f"{told:.2f} s", "2 s")
        profile.figure(18, "it has ended: ready", f"{back:.2f} s", "2 s")


if PLANTED != "deaf_watchdog":
    dead_and_hung()
if PLANTED in (None, "deaf_watchdog"):
    stuck_loop()
if not PLANTED:
    device_lost()
    loading()
    slow()
    disk_full()
    database_held()
    stuck_in_a_sync()
finish("health")
