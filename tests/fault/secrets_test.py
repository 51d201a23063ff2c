#!/usr/bin/env python3
"""P23: secrets stay put. Sentinels as API key, prompt, file name, file text, header and setting go
through every door, with faults on the way and the log at its most talkative; then they are looked
for wherever they do not belong: command lines and environments of every process of ours (seen
while they run), logs, refusals, /health, what a crash leaves, files that others may read.

T44 (acme-dns/acme-dns#82, jerichosequitin/metabase-mcp#33, verygoodplugins/whatsapp-mcp#223): a
job database that the world may read, the key in a log. vllm-project/vllm#52523, #53625: the key in
the line that tells the settings.

Planted: `key_in_argv`, a daemon that was started with its key as an argument.
"""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import BIN, PLANTED, Daemon, Mcp, check, cli, finish, json, signal, threading, time, wait_until
import profile
import raw_http
from raw_http import request

KEY = "sentinelkey" + "0123456789abcdef" * 2
WORDS = {"key": KEY, "prompt": "sentinelprompt", "file name": "sentinelfilename", "file text": "sentinelfiletext", "header": "sentinelheader",
         "setting": "sentinelsetting", "system": "sentinelsystem", "label": "sentinellabel", "tool": "sentineltool", "query": "sentinelquery"}
hits = []
looked_at = {"processes": 0, "answers": 0, "logs": 0, "files": 0}


def look(where, text, but=()):
    """Every sentinel in `text` is a hit, but those that this place is there to hold."""
    data = text if isinstance(text, bytes) else str(text).encode()
    for name, word in WORDS.items():
        if name not in but and word.encode() in data:
            hits.append((name, where))
            at = data.index(word.encode())
            check(False, f"the {name} is in {where}: {data[max(0, at - 60):at + 60]!r}")


def our_processes(home):
    """Every process that has `home` in its command line or environment, or descends from one."""
    parents, ours = {}, set()
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        parents[int(entry.name)] = parent
        program = os.path.basename(command.split(b"\0")[0].decode("latin1").split(" ")[0])
        if str(home).encode() in command and program in ("ponderd", "ponder-engine", "ponder-mcp", "ponder"):
            ours.add(int(entry.name))
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= more
        grown = bool(more)
    return ours


class ProcessWatch:
    """Reads /proc over and over while the rest runs, so that short-lived children are seen too."""

    def __init__(self, home):
        self.home, self.over, self.seen = home, threading.Event(), set()
        self.children = pathlib.Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.over.wait(0.02):
            for pid in our_processes(self.home):
                program = b""
                for what in ("cmdline", "environ"):
                    try:
                        data = pathlib.Path(f"/proc/{pid}/{what}").read_bytes()
                    except OSError:
                        continue
                    program = program or os.path.basename(data.split(b"\0")[0])
                    if (pid, what, data) in self.seen:
                        continue
                    self.seen.add((pid, what, data))
                    looked_at["processes"] += 1
                    # What the user types after `ponder` is the user's, and so is the environment that a
                    # program was started in; what the daemon hands on is ours.
                    if what == "cmdline" and program == b"ponder":
                        continue
                    # A child that has not called exec yet looks like the ponderd that it comes from.
                    if what == "environ" and (program == b"ponderd" or pid in self.started_by_harness()):
                        continue
                    look(f"{what} of process {pid} ({data[:40]!r})", data)

    def started_by_harness(self):
        return {int(pid) for pid in self.children.read_text().split()}

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def every_door(daemon, doors):
    """Sentinels through each door; every refusal is read."""
    w = WORDS
    fields = {"system": w["system"], "label": w["label"], "files": [{"name": w["file name"], "text": w["file text"]}]}
    ids = []
    for n, marker in enumerate(("[[stub tokens=5]]", "[[stub fault=crash after=3]]", "[[stub fault=exit0 after=3]]", "[[stub fault=out_of_memory after=3]]",
                                "[[stub fault=invalid_utf8 after=2]]", "[[stub fault=loop after=3]]", "[[stub tokens=5000 rate=100]]",
                                "[[stub tokens=50 rate=10 text=" + w["prompt"] + "]]")):
        reply = daemon.submit(f"{w['prompt']} {n} {marker}", max_reasoning_tokens=100, max_answer_tokens=200, **fields)
        check(reply.status == 201, f"submitted: {reply.body[:200]}")
        ids.append(reply.json["job_id"])
    refusals(daemon, doors, ids[0])
    chat = {"messages": [{"role": "system", "content": w["system"]}, {"role": "user", "content": w["prompt"] + " [[stub tokens=4]]"}],
            "tools": [{"type": "function", "function": {"name": w["tool"]}}]}
    check(daemon.call("POST", "/v1/chat/completions", chat).status == 200, "a chat turn")
    crash = {"messages": [{"role": "user", "content": w["prompt"] + " [[stub fault=crash after=2]]"}]}
    answer(daemon.call("POST", "/v1/chat/completions", crash), "a chat turn whose worker crashes")
    file = daemon.home / "models" / w["file name"]
    file.write_text(w["file text"])
    env = {"PONDER_KEY_FILE": str(daemon.home / "api-key")}
    cli(daemon.home, "ask", w["prompt"] + " [[stub tokens=3]]", env=env)
    cli(daemon.home, "submit", "-", "--file", str(file), stdin=w["prompt"] + " by stdin [[stub tokens=3]]", env=env)
    cli(daemon.home, "health", env={"PONDER_URL": f"http://127.0.0.1:{doors.port}", **env})
    mcp = Mcp(daemon.home, cwd=daemon.home / "models")
    mcp.tool("ask", question=w["prompt"] + " over mcp [[stub tokens=3]]", files=[w["file name"]], wait_s=10)
    mcp.tool("submit", task=w["prompt"] + " over mcp [[stub fault=exit0 after=2]]")
    mcp.close()
    for job_id in ids[:6]:
        daemon.wait_terminal(job_id, 30)
    for job in daemon.all_jobs():
        daemon.call("POST", f"/v1/jobs/{job['job_id']}/cancel", {})


def answer(reply, what):
    looked_at["answers"] += 1
    look(f"the answer to {what}", reply.body)
    look(f"the headers of the answer to {what}", str(reply.headers))


def refusals(daemon, doors, job_id):
    """Everything that is refused, with sentinels in it: the words of the refusal are ours alone."""
    w = WORDS
    text = w["prompt"]
    bodies = [("/v1/jobs", {"task": text, "effort": [1]}), ("/v1/jobs", {"task": text, "max_answer_tokens": -1}), ("/v1/jobs", {"task": text, "schema": {"pattern": text}}),
              ("/v1/jobs", {"task": text, "messages": [{"role": "user", "content": text}]}), ("/v1/jobs", {"task": text, "deadline_s": "soon"}),
              ("/v1/jobs", {"task": text, "files": [{"name": w["file name"]}]}), ("/v1/jobs", {"task": text, "label": w["label"] + "\n"}),
              ("/v1/jobs", {"task": text * 40_000, "system": w["system"], "max_answer_tokens": 10**9}), ("/v1/jobs", {"task": text, "continue_from": job_id, "mode": "answer_now"}),
              ("/v1/jobs", {"task": text, "idempotency_key": "a"}), ("/v1/jobs", {"task": text + "!", "idempotency_key": "a"}),
              ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": text}}]}]}),
              ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": text}, 5]}]}),
              ("/v1/chat/completions", {"messages": [{"role": "nobody", "content": text}]}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "n": 2}),
              ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "temperature": -5}),
              ("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": w["tool"], "arguments": "{" + text}}]}]}),
              ("/v1/tokenize", {"txt": text}), ("/v1/unknown", {"task": text})]
    for target, body in bodies:
        reply = daemon.call("POST", target, body)
        if reply.status >= 400:
            answer(reply, f"POST {target} {list(body)}")
    for raw in (b'{"task": "' + text.encode(), b'{"task": "' + text.encode() + b'\xff"}', text.encode(), b"[" * 100 + text.encode()):
        answer(daemon.call("POST", "/v1/jobs", raw=raw), f"the body {raw[:12]!r}")
    secret = ("Content-Type: application/json", f"X-Secret: {w['header']}", f"Cookie: {w['header']}")
    host = f"Host: 127.0.0.1:{doors.port}"
    body = json.dumps({"task": text}).encode()
    length = f"Content-Length: {len(body)}"
    for name, data in (("a wrong key", request("GET /v1/jobs HTTP/1.1", host, f"Authorization: Bearer {KEY}x", *secret)),
                       ("a key in the wrong scheme", request("GET /v1/jobs HTTP/1.1", host, f"Authorization: Basic {KEY}", *secret)),
                       ("a key in the target", request(f"GET /v1/jobs?key={KEY}&q={w['query']} HTTP/1.1", host, *secret)),
                       ("a key in a path", request(f"GET /v1/jobs/{KEY} HTTP/1.1", host, f"x-api-key: {KEY}", *secret)),
                       ("a bad parameter", request(f"GET /v1/jobs?limit={w['query']} HTTP/1.1", host, f"x-api-key: {KEY}", *secret)),
                       ("a bad job in a list", request(f"GET /v1/jobs?before={w['query']} HTTP/1.1", host, f"x-api-key: {KEY}", *secret)),
                       ("a foreign host", request("GET /v1/jobs HTTP/1.1", f"Host: {w['header']}", f"x-api-key: {KEY}", *secret)),
                       ("a foreign origin", request("GET /v1/jobs HTTP/1.1", host, f"Origin: http://{w['header']}", f"x-api-key: {KEY}", *secret)),
                       ("a bad header", request("GET /v1/jobs HTTP/1.1", host, f"x-api-key: {KEY}", f"{w['header']} : x")),
                       ("a bad expect", request("POST /v1/jobs HTTP/1.1", host, f"x-api-key: {KEY}", f"Expect: {w['header']}", length, body=body)),
                       ("a bad chunk", request("POST /v1/jobs HTTP/1.1", host, f"x-api-key: {KEY}", "Content-Type: application/json", "Transfer-Encoding: chunked",
                                               body=b"5 \r\n" + text.encode())),
                       ("another content type", request("POST /v1/jobs HTTP/1.1", host, f"x-api-key: {KEY}", f"Content-Type: {w['header']}/x", length, body=body)),
                       ("no such method", request(f"{w['header'][:20]} /v1/jobs HTTP/1.1", host, f"x-api-key: {KEY}"))):
        answers, rest, _ = raw_http.exchange(doors, "tcp", data, 0.5)
        check(len(answers) == 1 and answers[0].status >= 400, f"{name}: refused, got {[a.status for a in answers]}")
        for one in answers:
            answer(one, name)


def public_places(daemon, doors):
    for target in ("/health", "/v1/models"):
        answer(daemon.call("GET", target), target)
    answers, _, _ = raw_http.exchange(doors, "tcp", request("GET /health HTTP/1.1", f"Host: 127.0.0.1:{doors.port}", "Connection: close"))
    check(len(answers) == 1 and set(answers[0].json) == {"state"}, f"/health without the key: {answers}")
    look("--print-config", subprocess.run([BIN / "ponderd", "--home", daemon.home, "--print-config"], capture_output=True).stdout, but=("setting",))
    for command in (("doctor",), ("config",), ("status",), ("health", "--json"), ("version",)):
        done = cli(daemon.home, *command, "--no-start", env={"PONDER_KEY_FILE": str(daemon.home / "api-key")})
        look(f"ponder {command[0]}", done.stdout + done.stderr, but=("setting", "label"))


def files(home, mask):
    """Nothing of ours may be read by others, whatever the umask; and who holds which sentinel."""
    for path in [home, *home.rglob("*")]:
        looked_at["files"] += 1
        mode = path.lstat().st_mode
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        if path.name in ("stderr.log", WORDS["file name"]):  # the harness made these
            continue
        check(stat.S_IMODE(mode) & 0o077 == 0 and stat.S_IMODE(mode) & ~wanted == 0, f"{path.name} has mode {stat.S_IMODE(mode):o} under umask {mask:03o}")
        if not stat.S_ISREG(mode) or path.name.startswith("ponder.db"):
            continue  # the database is the place for all but the key
        look(f"the file {path.name}", path.read_bytes(), but={"api-key": ("key",), "ponder.toml": ("setting",)}.get(path.name, ()))
    for path in home.glob("ponder.db*"):
        check(KEY.encode() not in path.read_bytes(), f"the key is in {path.name}")


def crashes(daemon):
    """The daemon and its worker killed by their own signals: what is printed and what is left."""
    before = set(daemon.home.rglob("*"))
    worker = daemon.call("GET", "/health").json["engine"]["pid"]
    job = daemon.submit(WORDS["prompt"] + " [[stub tokens=2000 rate=50]]", force_new=True).json["job_id"]
    wait_until(lambda: daemon.job(job)["state"] == "running", 5, "a job runs")
    os.kill(worker, signal.SIGSEGV)
    wait_until(lambda: daemon.try_health().get("engine", {}).get("pid") not in (None, worker), 10, "the worker is replaced")
    daemon.process.send_signal(signal.SIGABRT)
    daemon.process.wait(20)
    cores = [p for p in set(daemon.home.rglob("*")) - before if "core" in p.name]
    check(not cores, f"no core file: {cores}")
    for path in set(daemon.home.rglob("*")) - before:
        if path.is_file() and not path.name.startswith("ponder.db"):
            look(f"what the crash left, {path.name}", path.read_bytes())
    daemon.start()
    daemon.call("POST", f"/v1/jobs/{job}/cancel", {})


def sentinels(level, mask):
    config = f'log_level = "{level}"\nstall_s = 1\non_done = ["/bin/true", "{WORDS["setting"]}"]\n'
    old = os.umask(mask)
    try:
        daemon, port = raw_http.with_tcp("--engine", "stub", config=config)
        os.chmod(daemon.home / "ponder.toml", 0o600)
        (daemon.home / "api-key").write_text(KEY + "\n")
        os.chmod(daemon.home / "api-key", 0o600)
        with daemon, ProcessWatch(daemon.home):
            # Settings from the environment must not travel on into the engine's process.
            os.environ["PONDER_KEY"] = KEY
            os.environ["PONDER_API_KEY"] = KEY
            doors = raw_http.started(daemon, port)
            del os.environ["PONDER_KEY"], os.environ["PONDER_API_KEY"]
            worker = daemon.call("GET", "/health").json["engine"]["pid"]
            look("the engine's environment", pathlib.Path(f"/proc/{worker}/environ").read_bytes())
            every_door(daemon, doors)
            public_places(daemon, doors)
            crashes(daemon)
            files(daemon.home, mask)
            daemon.stop()
            looked_at["logs"] += 1
            look(f"the log at level {level}", daemon.log.read_bytes())
            check(daemon.log.stat().st_size > 100 or level in ("warn", "error"), "there is a log")
    finally:
        os.umask(old)
    detached(level, mask)


def detached(level, mask):
    """The log file of a detached daemon, under the same umask."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="ponder-e2e-"))
    try:
        (home / "ponder.toml").write_text(f'log_level = "{level}"\nengine = "stub"\nport = 0\n')
        os.chmod(home / "ponder.toml", 0o600)
        started = subprocess.run([BIN / "ponderd", "--home", home, "--detach"], capture_output=True, text=True, timeout=30, umask=mask)
        check(started.returncode == 0, f"detached: {started.stderr}")
        cli(home, "ask", WORDS["prompt"] + " [[stub fault=exit0 after=2]]")
        files(home, mask)
        cli(home, "stop", "--now")
        looked_at["logs"] += 1
        look("the log of a detached daemon", (home / "logs/ponderd.log").read_bytes())
    finally:
        cli(home, "stop", "--now")
        shutil.rmtree(home, ignore_errors=True)


def traps():
    """CVE-2026-53759, contribsys/faktory 1.10 (a predictable name, a link in its place): what lies in
    the state directory before the first start. Refused, or harmless: the bait is as it was."""
    names = ["ponder.db", "ponder.db-wal", "ponder.db-shm", "ponderd.lock", "ponderd.sock", "api-key", "started-with", "stopped", "logs/ponderd.log"]
    cases = [(f"{name} is a link to a bait", name, "link") for name in names]
    cases += [(f"{name} is a link to nothing", name, "dangling") for name in ("ponder.db", "api-key", "ponderd.lock", "logs/ponderd.log", "started-with")]
    cases += [(f"{name} is a FIFO", name, "fifo") for name in ("ponder.db", "api-key", "ponderd.lock", "ponder.toml")]
    cases += [(f"{name} is a directory", name, "directory") for name in ("ponder.db", "api-key", "ponderd.lock", "ponderd.sock")]
    if os.geteuid() == 0:
        cases += [(f"{name} is another user's", name, "foreign") for name in (".", "ponder.db", "api-key", "ponderd.lock", "logs")]
        # A directory of the owner's own that the owner linked in is the owner's choice; somebody else's is not.
        cases += [("the home is a link to another user's directory", ".", "foreign_link")]
        cases += [("logs is a link to another user's directory", "logs", "foreign_link"), ("models is a link to another user's directory", "models", "foreign_link")]
    cases += [("the home is open to all", ".", "open"), ("the home is sticky and open", ".", "sticky")]
    harmless = refused = 0
    for what, name, kind in cases:
        parent = pathlib.Path(tempfile.mkdtemp(prefix="ponder-trap-"))
        try:
            harm, start = spring(parent, name, kind)
            check(not harm, f"{what}: {harm}")
            if start == "refused":
                refused += 1
            harmless += not harm
        finally:
            shutil.rmtree(parent, ignore_errors=True)
    profile.figure("P23", "traps in the state directory; harmless (of these refused)", f"{len(cases)}; {harmless} ({refused})", ">= 20; all")
    check(len(cases) >= 20, f"{len(cases)} traps")


def spring(parent, name, kind):
    """Lays the trap and starts a daemon into it. What harm was done, or None; refused or started."""
    home, bait_dir = parent / "home", parent / "bait"
    bait_dir.mkdir()
    home.mkdir(mode=0o700)
    bait = bait_dir / "bait"
    bait.write_text("do not touch\n")
    os.chmod(bait, 0o644)
    place = home if name == "." else home / name
    if name.startswith("logs/"):
        (home / "logs").mkdir(mode=0o700)
    if kind == "link":
        place.symlink_to(bait)
    elif kind == "dangling":
        place.symlink_to(bait_dir / "made-by-a-link")
    elif kind == "fifo":
        os.mkfifo(place, 0o600)
    elif kind == "directory":
        place.mkdir()
    elif kind == "foreign":
        if name == "logs":
            place.mkdir()
        elif name != ".":
            place.write_text("x" * 40)
            os.chmod(place, 0o666)
        os.chown(place, 65534, 65534)
    elif kind == "foreign_link":
        real = parent / "real"
        real.mkdir(mode=0o777)
        os.chown(real, 65534, 65534)
        if name == ".":
            home.rmdir()
        place.symlink_to(real)
    elif kind == "open":
        os.chmod(home, 0o777)
    elif kind == "sticky":
        os.chmod(home, 0o1777)
    before = (bait.read_text(), bait.stat().st_mode, bait.stat().st_uid, sorted(p.name for p in bait_dir.iterdir()))
    command = [BIN / "ponderd", "--home", home, "--engine", "stub", "--port", "0", "--detach"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=15, umask=0)
    except subprocess.TimeoutExpired:
        return "the start hangs", "hung"
    harm = None
    started = done.returncode == 0
    if started:
        cli(home, "submit", "x [[stub tokens=2]]")
        open_to_others = [str(p.relative_to(home)) for p in home.rglob("*")
                          if not p.is_symlink() and p.lstat().st_uid == os.geteuid() and stat.S_IMODE(p.lstat().st_mode) & 0o077 and p.name != "bait"]
        cli(home, "stop", "--now")
        if open_to_others:
            harm = f"started and left {open_to_others} open to others"
        elif stat.S_IMODE(home.stat().st_mode) & 0o077 or home.stat().st_uid != os.geteuid():
            harm = f"started in a directory of mode {home.stat().st_mode:o} of uid {home.stat().st_uid}"
    elif not done.stderr.strip():
        harm = "refused without a word"
    elif done.returncode not in (1, 2):
        harm = f"exit {done.returncode}: {done.stderr[:200]}"
    after = (bait.read_text(), bait.stat().st_mode, bait.stat().st_uid, sorted(p.name for p in bait_dir.iterdir()))
    if after != before:
        harm = f"the bait was {before} and is {after}"
    return harm, "started" if started else "refused"


def planted():
    """A program that carries the key in its command line, as a unit file written in haste does."""
    daemon, port = raw_http.with_tcp("--engine", "stub")
    (daemon.home / "api-key").write_text(KEY + "\n")
    os.chmod(daemon.home / "api-key", 0o600)
    with daemon, ProcessWatch(daemon.home):
        command = [f"ponderd --api-key={KEY}", "--home", daemon.home, "--port", "0", *daemon.arguments]
        with open(daemon.log, "ab") as log:
            daemon.process = subprocess.Popen(command, executable=BIN / "ponderd", stdout=log, stderr=log)
        wait_until(lambda: daemon.try_health().get("state") == "ready", 15, "the daemon is ready")
        time.sleep(0.2)


def main():
    if PLANTED:
        planted()
    else:
        for level in profile.size(("debug",), ("debug", "info", "warn", "error")):
            for mask in profile.size((0,), (0, 0o077)):
                sentinels(level, mask)
        traps()
        profile.figure("P23", "looked at: process states, answers, logs, files", "{processes}, {answers}, {logs}, {files}".format(**looked_at), "")
        check(looked_at["processes"] > 10 and looked_at["answers"] > 30, f"enough was looked at: {looked_at}")
    profile.figure("P23", f"hits of {len(WORDS)} sentinels where they do not belong", len(hits), "0")
    finish("secrets")


main()
