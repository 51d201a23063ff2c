#!/usr/bin/env python3
"""SIGSTOP and SIGCONT of the daemon and its worker: who was away too long changes nothing.

second_daemon   one that is started while the first is stopped does not run
taken_over      the lock file of a stopped daemon is removed (a cleaner of old files does it), so that a
                second one takes its jobs; the first goes on, writes nothing into them, and ends
stopped_worker  a pause goes unnoticed; one longer than stall_s costs the worker, and what it says
                afterwards is not heard
released        the end of a job and a cancel, or its end and the death of its worker, at the same moment

Planted: no_fence in the daemon that was stopped; unlocked: every daemon has a lock file of its own.
"""
import os
import random
import signal
import subprocess
import threading
import time

from profile import figure, size  # first: it knows where harness is
import audit
from harness import BIN, PLANTED, TERMINAL, Daemon, alive, breaches, check, finish, planted_sqlite, wait_until

SEED = int(os.environ.get("PONDER_SEED", random.randrange(1 << 32)))
CHANCE = random.Random(SEED)


def ends_whole(daemon, job_id, task, tokens, think, what):
    job = daemon.wait_terminal(job_id, 5 if PLANTED else 30)
    check(job["state"] == "completed", f"{what}: {job_id} completes, it is {job['state']} {job['reason']}")
    text = daemon.text(job_id, "reasoning"), daemon.text(job_id)
    return check(text == audit.pure_text(task, tokens, think), f"{what}: the text of {job_id} is not the engine's")


def second_daemon():
    """The lock is the daemon's life: one that does not move still holds it."""
    with Daemon("--engine", "stub") as first:
        first.start()
        task = "first [[stub tokens=200 think=20 rate=200]]"
        job_id = first.submit(task).json["job_id"]
        first.process.send_signal(signal.SIGSTOP)
        if PLANTED == "unlocked":
            (first.home / "ponderd.lock").unlink()
        began = time.monotonic()
        second = subprocess.Popen([BIN / "ponderd", "--home", first.home, "--port", "0", "--engine", "stub"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            code = second.wait(3)
            said = second.stderr.read()
            check(code == 0 and str(first.process.pid) in said, f"a second daemon ends and names the first: {code} {said}")
        except subprocess.TimeoutExpired:
            check(False, "a second daemon runs beside a stopped one")
            second.kill()
        took = time.monotonic() - began
        first.process.send_signal(signal.SIGKILL if PLANTED else signal.SIGCONT)
        if not PLANTED:
            ends_whole(first, job_id, task, 200, 20, "after a pause")
            figure(2, "a second daemon beside a stopped one ends after", f"{took:.2f} s", "3 s")
            check(took < 3, f"a second daemon gives up within 3 s, it took {took:.2f} s")
            audit.audit(first.home, " after a second start")


# T21, lion-reader#917, clevis#215: the late writer overwrites.
def taken_over(rounds):
    late = wrong = 0
    slowest = 0
    for number in range(rounds):
        with Daemon("--engine", "stub", environment=planted_sqlite(PLANTED)) as first:
            (first.home / "ponder.toml").write_text("max_running_batch = 4\n")
            first.start()
            tasks = [f"round {number} {k} [[stub tokens=100 think=10 rate={rate}]]" for k, rate in enumerate((220, 300, 90))]
            ids = [first.submit(task).json["job_id"] for task in tasks]
            waiting = first.submit(f"round {number} cancelled [[stub tokens=5000 rate=200]]").json["job_id"]
            time.sleep(CHANCE.uniform(0.1, 0.45))
            second = Daemon("--engine", "stub", home=first.home)
            for _ in range(10):  # the first may have been stopped with a transaction open
                first.process.send_signal(signal.SIGSTOP)
                (first.home / "ponderd.lock").unlink(missing_ok=True)
                first.socket.unlink(missing_ok=True)  # it would take a connection and never answer
                second.start(wait_ready=False)
                wait_until(lambda: second.process.poll() is not None or second.try_health().get("state"), 15,
                           "the second daemon takes over")
                if second.process.poll() is None:
                    break
                first.process.send_signal(signal.SIGCONT)
                time.sleep(0.05)
            instances = {row["instance"] for row in audit.rows(first.home) if row["state"] == "running"}
            check(len(instances) <= 1, f"one instance runs them all, not {instances}")
            second.call("POST", f"/v1/jobs/{waiting}/cancel")
            time.sleep(CHANCE.uniform(0, 0.4))
            told = {row["id"]: (row["state"], row["reason"], row["text_sha256"]) for row in audit.rows(first.home)
                    if row["state"] in TERMINAL}
            began = time.monotonic()
            first.process.send_signal(signal.SIGCONT)
            gone = wait_until(lambda: first.process.poll() is not None, 3, "a daemon whose jobs were taken over ends")
            slowest = max(slowest, time.monotonic() - began)
            if gone is None:
                late += 1
                first.process.kill()
                if PLANTED:
                    return
            for job_id, task in zip(ids, tasks):
                wrong += not ends_whole(second, job_id, task, 100, 10, "taken over")
            check(second.job(waiting)["state"] == "cancelled", "a cancel told by the second daemon holds")
            rows = {row["id"]: (row["state"], row["reason"], row["text_sha256"]) for row in audit.rows(first.home)}
            for job_id, end in told.items():
                check(rows[job_id] == end, f"the late writer changes nothing: {job_id} was {end}, is {rows[job_id]}")
            wrong += audit.audit(first.home, f" after a take-over {number}")
            check(second.stop() == 0, "the second daemon stops cleanly")
        if PLANTED and breaches:
            break
    figure(2, f"{rounds} take-overs from a stopped daemon (SIGSTOP, SIGCONT): late writes, daemons that go on",
           f"{wrong}, {late}", "0, 0")
    print(f"the daemon that was away ended after at most {slowest:.2f} s", flush=True)


def stopped_worker(rounds):
    stalled = 0
    with Daemon("--engine", "stub") as daemon:
        (daemon.home / "ponder.toml").write_text("stall_s = 1.0\n")
        daemon.start()
        for number in range(rounds):
            task = f"pause {number} [[stub tokens=60 think=10 rate=120]]"
            job_id = daemon.submit(task).json["job_id"]
            wait_until(lambda: daemon.job(job_id)["reasoning_chars"] > 10, 10, "the job runs")
            pid = daemon.try_health()["engine"]["pid"]
            os.kill(pid, signal.SIGSTOP)
            time.sleep(CHANCE.uniform(0.1, 0.7))
            os.kill(pid, signal.SIGCONT)
            ends_whole(daemon, job_id, task, 60, 10, "after a pause of the worker")
        task = "away [[stub tokens=400 think=10 rate=120]]"
        job_id = daemon.submit(task).json["job_id"]
        wait_until(lambda: daemon.job(job_id)["reasoning_chars"] > 10, 10, "the job runs")
        pid = daemon.try_health()["engine"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        job = daemon.wait_terminal(job_id, 10)
        check((job["state"], job["reason"]) == ("incomplete", "stalled"), f"it stalled: {job['state']} {job['reason']}")
        wait_until(lambda: not alive(pid), 3, "a stopped worker that is replaced is gone")
        stored = audit.stored_text(daemon.home, job_id)
        check(all(p.startswith(s) for p, s in zip(audit.pure_text(task, 400, 10), stored)), "its text is a beginning")
        task = "next [[stub tokens=10 think=2 rate=500]]"
        ends_whole(daemon, daemon.submit(task).json["job_id"], task, 10, 2, "after a stall")
        stalled = audit.audit(daemon.home, " after stops of the worker")
    figure(2, f"{rounds + 1} stops of the worker: rows that break an audit query", stalled, "0")


# Row 1, solid_queue#589: a worker that was pruned while it finished, a job both finished and failed.
def released(rounds):
    """Two things that end a job, let go at the same moment: one end, the same for everybody who asks."""
    ends = {}
    aim, stride = 0.0, 0.016  # between the moments at which the last cancel came too early and too late
    was_late = False
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        for number in range(rounds):
            of_worker = number % 2 == 1
            tokens, rate = 24, 240  # its last token comes 96 ms after the first
            task = f"released {number} [[stub tokens={tokens} rate={rate}]]"
            barrier = threading.Barrier(3)
            told = []
            wait_until(lambda: daemon.try_health().get("state") == "ready", 10, "the worker is there")
            pid = daemon.try_health()["engine"]["pid"]
            job_id = daemon.submit(task).json["job_id"]
            due = time.monotonic() + (tokens - 1) / rate + aim + CHANCE.uniform(-0.002, 0.002)

            def cancel_or_kill():
                barrier.wait()
                time.sleep(max(0, due - time.monotonic()))
                if of_worker:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                else:
                    told.append(daemon.call("POST", f"/v1/jobs/{job_id}/cancel").json["state"])

            def watch():
                barrier.wait()
                told.append(daemon.wait_terminal(job_id, 20)["state"])

            threads = [threading.Thread(target=cancel_or_kill), threading.Thread(target=watch)]
            for thread in threads:
                thread.start()
            barrier.wait()
            for thread in threads:
                thread.join()
            told.append(daemon.job(job_id)["state"])
            check(len(set(told)) == 1 and told[0] in ("completed", "cancelled"), f"one end of {job_id}, told as {told}")
            if not of_worker:
                late = told[0] != "cancelled"
                if number and late != was_late:
                    stride = max(0.001, stride / 2)
                aim, was_late = aim + (-stride if late else stride), late
            check(not of_worker or told[0] == "completed", f"a worker killed from outside ends nothing: {told}")
            ends[(of_worker, told[0])] = ends.get((of_worker, told[0]), 0) + 1
            row = audit.rows(daemon.home, "select state, attempt from job where id = ?", (job_id,))[0]
            check(row["state"] == told[0] and row["attempt"] == 1, f"{job_id} is {row}, told {told}")
            pure = audit.pure_text(task, tokens, 0)[1]
            text = daemon.text(job_id)
            check(text == pure if told[0] == "completed" else pure.startswith(text), f"{job_id} has the engine's text")
        found = audit.audit(daemon.home, " after ends at the same moment")
    figure(2, f"{rounds} ends released together with a cancel or the worker's death: rows that break an audit query",
           found, "0")
    print(f"ends (worker killed, state): {ends}", flush=True)
    cancels = {state for of_worker, state in ends if not of_worker}
    check(rounds < 40 or len(cancels) == 2, f"the moment is met: cancels ended as {cancels}")


print(f"seed {SEED}", flush=True)
if PLANTED == "unlocked":
    second_daemon()
elif PLANTED == "no_fence":
    try:
        taken_over(10)
    except OSError as problem:
        check(False, f"taken over: the daemon that took over is gone: {problem}")
else:
    second_daemon()
    taken_over(size(4, 200))
    stopped_worker(size(3, 40))
    released(size(40, 400))
finish("stopped")
