#!/usr/bin/env python3
"""A disk that is full, fails or can only be read: what was accepted is never lost, what cannot be
stored is refused and gets no id, no end is told before it is written, and a second after the disk
works again so does the queue.

A tmpfs is filled to many levels; ENOSPC, EDQUOT, EIO and EROFS are put in the place of system calls by
strace, at the start and in the middle of work; a file system is made read-only.

P13. Planted (tests/fault/planted_sqlite.cc): late_commit.
"""
import concurrent.futures
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import PLANTED, TERMINAL, Daemon, check, finish, planted_sqlite, wait_until
from profile import figure, size

LEVELS = size(6, 50)
FAULTS = size(20, 200)
DISK_KIB = 6 * 1024
AT_ONCE = 3
BACK_S = 5.0
NOT_RUN = 77  # CMakeLists.txt


daemons = []


class Counts:
    accepted = lost = untrue = damaged = faults = levels = 0
    back_s = 0.0
    lock = threading.Lock()


class Jobs:
    """What a client was told while the disk failed."""

    def __init__(self, daemon, name):
        self.daemon, self.name, self.number = daemon, name, 0
        self.accepted, self.ended, self.refused, self.asked_to_end = [], {}, 0, set()

    def submit(self, text="", **fields):
        self.number += 1
        reply = self.daemon.submit(f"{self.name} {self.number} [[stub tokens=3 think=1 rate=2000]]", context=text, **fields)
        if reply.status == 201:
            self.accepted.append(reply.json["job_id"])
            return True
        self.refused += 1
        body = reply.json or {}
        error = body.get("error", {})
        check(reply.status == 507 or (reply.status == 503 and error.get("code") == "storage"),
              f"{self.name}: what cannot be stored is refused with storage, got {reply.status} {error.get('code')}")
        check("job_id" not in body and not error.get("job_id"), f"{self.name}: a refusal names no job")
        return False

    def cancel_last(self):
        """A cancel counts as told only where it is answered with the end; one that is refused may
        still come true when the disk works again."""
        if self.accepted:
            self.asked_to_end.add(self.accepted[-1])
            reply = self.daemon.call("POST", f"/v1/jobs/{self.accepted[-1]}/cancel", {})
            if reply.status == 200 and reply.json["state"] in TERMINAL:
                self.ended[self.accepted[-1]] = reply.json["state"]
            else:
                check(reply.status == 503, f"{self.name}: a cancel that cannot be stored is refused, got {reply.status}")

    def look(self):
        for job_id in self.accepted:
            if job_id not in self.ended:
                job = self.daemon.job(job_id) or {}
                if "state" not in job:
                    check(False, f"{self.name}: accepted job {job_id} is lost: {job.get('error', {}).get('message')}")
                    return
                if job["state"] in TERMINAL:
                    self.ended[job_id] = job["state"]

    def audit(self, home):
        """After a kill -9, on a copy: everything that was told is there."""
        with tempfile.TemporaryDirectory(prefix="ponder-audit-") as folder:
            for file in pathlib.Path(home).glob("ponder.db*"):
                if not file.name.endswith("-shm"):
                    shutil.copy(file, folder)
            verdict, rows = "ok", {}
            try:
                db = sqlite3.connect(pathlib.Path(folder) / "ponder.db")
                verdict = db.execute("pragma integrity_check").fetchone()[0]
                rows = dict(db.execute("select id, state from job"))
                db.close()
            except sqlite3.Error as error:
                verdict = str(error)
        lost = [job_id for job_id in self.accepted if job_id not in rows]
        untrue = [job_id for job_id, state in self.ended.items() if rows.get(job_id) not in (state, "expired")]
        check(verdict == "ok", f"{self.name}: the database is damaged: {verdict}")
        check(not lost, f"{self.name}: {len(lost)} of {len(self.accepted)} accepted jobs are lost")
        check(not untrue, f"{self.name}: {len(untrue)} ends were told and are not stored")
        with Counts.lock:
            Counts.accepted += len(self.accepted)
            Counts.lost += len(lost)
            Counts.untrue += len(untrue)
            Counts.damaged += verdict != "ok"

    def works_again(self, since):
        """Submits until one is accepted."""
        while time.monotonic() - since < BACK_S + 5 and not self.submit():
            time.sleep(0.1)
        back = time.monotonic() - since
        check(back <= BACK_S, f"{self.name}: works again after {back:.1f} s")
        with Counts.lock:
            Counts.back_s = max(Counts.back_s, back)


def make(home, log, **more):
    daemon = Daemon("--engine", "stub", home=home, **more)
    daemon.log = pathlib.Path(log)  # not on the disk that fails
    daemons.append(daemon)
    return daemon


def in_own_mounts():
    """Runs this program again where it may mount: as root, as root of a user namespace, or with sudo where
    that asks nothing. A chroot has no user namespaces, and its root is no mount whose propagation could change."""
    if os.environ.get("PONDER_OWN_MOUNTS"):
        return
    more = {"PONDER_OWN_MOUNTS": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # sudo leaves nothing of root's behind
    more.update((name, value) for name, value in os.environ.items() if name.startswith("PONDER_"))
    root = [["unshare", "-m"], ["unshare", "-m", "--propagation", "unchanged"]]
    sudo = ["sudo", "-n", "env", *(f"{name}={value}" for name, value in more.items())]
    for command in root if os.geteuid() == 0 else [["unshare", "-rm"], *(sudo + own for own in root)]:
        if shutil.which(command[0]) and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            os.execvpe(command[0], [*command, sys.executable, *sys.argv], {**os.environ, **more})
    print("not run: no disk can be mounted to be filled; run as root, with sudo, or where user namespaces are allowed")
    sys.exit(NOT_RUN)


def mount(*arguments):
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    return check(done.returncode == 0, f"mount {arguments}: {done.stderr.strip()}")


# --- a disk that fills --------------------------------------------------------------------------

def free_kib(disk):
    s = os.statvfs(disk)
    return s.f_bavail * s.f_frsize // 1024


def fill(disk, leave_kib):
    filler = disk / "filler"
    with open(filler, "ab", buffering=0) as file:
        try:
            while free_kib(disk) > leave_kib:
                file.write(bytes(min(65536, (free_kib(disk) - leave_kib) * 1024)))
        except OSError:
            pass  # the daemon was faster
    return filler


def full_disk(folder):
    disk = folder / "disk"
    disk.mkdir()
    if not mount("-t", "tmpfs", "-o", f"size={DISK_KIB}k,mode=700", "tmpfs", disk):
        return
    home = disk / "home"
    home.mkdir(mode=0o700)
    # What is read or pruned would make room by itself.
    (home / "ponder.toml").write_text("max_running_batch = 2\n")
    daemon = make(home, folder / "full.log", environment=planted_sqlite(PLANTED)).start()
    levels = 2 if PLANTED else LEVELS
    for level in range(levels):
        leave = level * (400 // LEVELS) // 8 * 8
        jobs = Jobs(daemon, f"{leave} KiB free")
        # A job whose end falls into the time without space.
        jobs.submit()
        reply = daemon.submit(f"ends while full {level} [[stub tokens=150 think=5 rate=200]]")
        jobs.accepted.append(reply.json["job_id"])
        filler = fill(disk, leave)
        for number in range(200):
            if not jobs.submit("x" * 3000, force_new=True):
                break
        check(jobs.refused > 0, f"{jobs.name}: a full disk refuses")

        def said():  # again and again: what a refusal gives back makes room for the daemon's next try
            fill(disk, 0)
            jobs.submit("x" * 9000, force_new=True)
            health = daemon.call("GET", "/health")
            return health.status == 503 and health.json["store"]["ok"] is False and "full" in health.json["reason"]

        wait_until(said, 3, f"{jobs.name}: /health says so")
        ends = time.monotonic() + 1.2
        while time.monotonic() < ends:
            jobs.look()
            time.sleep(0.1)
        check(daemon.process.poll() is None, f"{jobs.name}: the daemon is up")
        if level % 2 or PLANTED:  # what was told holds, also if it dies now
            daemon.kill()
            jobs.audit(home)
            if level % 4 == 1 and not PLANTED:
                refuse_to_start(daemon, jobs)
            filler.unlink()
            daemon.start()
            jobs.works_again(time.monotonic())
        else:
            filler.unlink()
            jobs.works_again(time.monotonic())
        for job_id in [] if PLANTED else jobs.accepted:
            check(daemon.wait_terminal(job_id, 30)["state"] == "completed", f"{jobs.name}: {job_id} completes")
        jobs.look()
        Counts.levels += 1
        daemon.kill()
        jobs.audit(home)
        daemon.start()
        daemon.call("POST", "/v1/jobs/prune", {"unread": True})
    check(daemon.stop() == 0, "the daemon stops cleanly")


def refuse_to_start(daemon, jobs):
    """On the full disk: it serves or says why not, and never harms what is there."""
    daemon.start(wait_ready=False)
    try:
        code = daemon.process.wait(3)
        check(code > 0, f"{jobs.name}: a start without space fails cleanly, it ended with {code}")
        said = daemon.log.read_text(errors="replace").rstrip().rsplit("\n", 2)
        check(any("full" in line or "space" in line for line in said[-2:]), f"{jobs.name}: it says why it does not start: {said[-2:]}")
    except subprocess.TimeoutExpired:
        check(daemon.try_health().get("state") is not None, f"{jobs.name}: it serves on the full disk")
        daemon.kill()


# --- system calls that fail ---------------------------------------------------------------------

def planned_faults():
    """(call, error, which one, from there on?, from the start of the program?), spread over all of it."""
    plans = []
    kinds = [("pwrite64", "ENOSPC"), ("fdatasync", "EIO"), ("pwrite64", "EIO"), ("ftruncate", "ENOSPC"),
             ("pwrite64", "EDQUOT"), ("openat", "EIO"), ("pwrite64", "EROFS"), ("fdatasync", "ENOSPC"),
             ("openat", "ENOSPC"), ("ftruncate", "EIO")]
    for number in range(FAULTS):
        call, error = kinds[number % len(kinds)]
        turn = number // len(kinds)
        at_start = call in ("openat", "ftruncate") or turn % 4 == 3
        which = 1 + turn if at_start else 1 + turn * (3 if call == "fdatasync" else 11)
        plans.append((call, error, which, turn % 2 == 0 and not at_start, at_start))
    return plans


def inject(home, call, error, which, goes_on):
    files = [part for name in ("ponder.db", "ponder.db-wal", "ponder.db-journal", "ponder.db-shm")
             for part in ("-P", str(home / name))]
    return ["strace", "-f", "-qq", "-o", "/dev/null", *files, "-e", f"trace={call}",
            "-e", f"inject={call}:error={error}:when={which}{'+' if goes_on else ''}"]


def one_fault(folder, number, plan):
    call, error, which, goes_on, at_start = plan
    home = folder / f"fault-{number}"
    home.mkdir(mode=0o700)
    name = f"{error} of {call} {which}{' on' if goes_on else ''}{' at start' if at_start else ''}"
    log = folder / f"fault-{number}.log"
    daemon = make(home, log).start()
    jobs = Jobs(daemon, name)
    for _ in range(3):
        jobs.submit()
    (at_its_start if at_start else in_its_work)(daemon, jobs, home, plan)
    # What is told now holds after a kill.
    jobs.look()
    daemon.kill()
    jobs.audit(home)
    daemon.start()
    for job_id in jobs.accepted:
        state = daemon.wait_terminal(job_id, 30)["state"]
        may_be = [jobs.ended[job_id]] if job_id in jobs.ended else ["completed"] + ["cancelled"] * (job_id in jobs.asked_to_end)
        check(state in may_be, f"{name}: {job_id} ends {state}, not {may_be}")
    check(daemon.stop() == 0, f"{name}: stops cleanly")
    with Counts.lock:
        Counts.faults += 1


def in_its_work(daemon, jobs, home, plan):
    pid = daemon.process.pid
    fault = subprocess.Popen([*inject(home, *plan[:4]), "-p", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: all(" 0\n" not in line for line in tracers(pid)), 10, f"{jobs.name}: strace holds the daemon")
    ends = time.monotonic() + size(0.8, 1.5)
    while time.monotonic() < ends:
        if jobs.submit("x" * 2000, force_new=True) and len(jobs.accepted) % 4 == 0:
            jobs.cancel_last()
        jobs.look()
        time.sleep(0.02)
    if plan[3] and not (plan[0] == "fdatasync" and jobs.refused == 0):
        check(jobs.refused > 0, f"{jobs.name}: a failing disk refuses")
        check(daemon.try_health().get("store", {}).get("ok") is False, f"{jobs.name}: /health says so")
    check(daemon.process.poll() is None, f"{jobs.name}: the daemon is up")
    fault.send_signal(signal.SIGINT)
    fault.wait(10)
    since = time.monotonic()
    if "sync" in (daemon.try_health().get("reason") or ""):
        # What the disk holds is unknown after a refused sync: a restart reads it anew.
        time.sleep(1.3)
        check(not jobs.submit(), f"{jobs.name}: a refused sync stays refused")
        jobs.look()
        daemon.stop()
        daemon.start()
        since = time.monotonic()
    jobs.works_again(since)


def tracers(pid):
    lines = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as status:
            lines += [line for line in status if line.startswith("TracerPid")]
    return [line.replace("\t", " ") for line in lines]


def at_its_start(daemon, jobs, home, plan):
    """A start over jobs that are there: it serves, or ends with a sentence and harms nothing."""
    jobs.look()
    daemon.kill()
    daemon.before = inject(home, *plan[:4])
    daemon.start(wait_ready=False)
    ends = time.monotonic() + 8
    while time.monotonic() < ends and daemon.process.poll() is None and not daemon.try_health():
        time.sleep(0.02)
    code = daemon.process.poll()
    if code is None:
        check(daemon.try_health().get("state") is not None, f"{jobs.name}: it serves")
        jobs.submit()
        jobs.look()
        os.kill(int((home / "ponderd.lock").read_text()), signal.SIGKILL)
        daemon.process.wait(10)
    else:
        last = daemon.log.read_text(errors="replace").rstrip().rsplit("\n", 2)[-2:]
        check(code == 1 and any("ponderd:" in line for line in last), f"{jobs.name}: a start that fails says why: {code} {last}")
    daemon.before = []
    daemon.start()
    jobs.works_again(time.monotonic())


# --- a file system that is read-only ------------------------------------------------------------

def read_only(folder):
    disk = folder / "read-only"
    disk.mkdir()
    home = disk / "home"
    if not mount("-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", disk):
        return
    home.mkdir(mode=0o700)
    daemon = make(home, folder / "read-only.log").start()
    jobs = Jobs(daemon, "read-only")
    for _ in range(5):
        jobs.submit()
    jobs.look()
    daemon.kill()
    mount("-o", "remount,ro", disk)
    daemon.start(wait_ready=False)
    try:
        code = daemon.process.wait(10)
        said = daemon.log.read_text(errors="replace").rstrip().rsplit("\n", 1)[-1]
        check(code == 1 and len(said) > 10, f"read-only: a start fails with a sentence: {code} {said}")
    except subprocess.TimeoutExpired:
        check(not jobs.submit(), "read-only: nothing is accepted")
        daemon.kill()
    mount("-o", "remount,rw", disk)
    daemon.start()
    jobs.works_again(time.monotonic())
    jobs.look()
    daemon.kill()
    jobs.audit(home)


def main():
    in_own_mounts()
    with tempfile.TemporaryDirectory(prefix="ponder-full-") as name, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        folder = pathlib.Path(name)
        work = [pool.submit(full_disk, folder)]
        if not PLANTED:
            work += [pool.submit(read_only, folder)]
            work += [pool.submit(one_fault, folder, number, plan) for number, plan in enumerate(planned_faults())]
        try:
            for done in concurrent.futures.as_completed(work):
                try:
                    done.result()
                except OSError as gone:
                    check(False, f"the daemon stays while the disk refuses: {gone}")
        finally:
            pool.shutdown(cancel_futures=True)
            for daemon in daemons:  # after a breach that stopped its thread
                if daemon.process.poll() is None:
                    daemon.kill()
            for disk in ("disk", "read-only"):
                subprocess.run(["umount", "-l", folder / disk], capture_output=True)
    figure("P13", "levels of a full disk", Counts.levels, f">= {LEVELS}")
    figure("P13", "system calls that failed", Counts.faults, f">= {FAULTS}")
    figure("P13", "jobs accepted while the disk failed", Counts.accepted, "> 0")
    figure("P13", "of these lost", Counts.lost, 0)
    figure("P13", "ends told and not stored", Counts.untrue, 0)
    figure("P13", "damaged databases", Counts.damaged, 0)
    figure("P13", "works again after, s", f"{Counts.back_s:.1f}", f"<= {BACK_S:.0f}")
    finish("full disk")


main()
