"""The command line's contract, from outside: exit codes, what stands on stdout and on stderr, who
starts the daemon and who must not.

    contract_cli_test.py BIN_DIR
"""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

from harness import BIN, Daemon, check, finish, free_port, wait_until

ID = re.compile(r"^[a-z0-9]{26}\n$")
ONE_ID = re.compile(r"\b[a-z0-9]{26}\b")
DROPPED = ("PONDER_HOME", "PONDER_URL", "PONDER_KEY_FILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
LONG = "[[stub tokens=4000 rate=20 text=slow]]"
UNKNOWN = "0" * 26
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="ponder-cli-"))  # everything is made below it


class Run:
    def __init__(self, words, done, out, err):
        self.words, self.code = words, done
        self.out, self.err = out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "surrogateescape")

    def __repr__(self):
        return f"ponder {' '.join(map(str, self.words))}: exit {self.code}, out {self.out[:300]!r}, err {self.err[:300]!r}"


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if k not in DROPPED}
    return {**clean, **{k: str(v) for k, v in more.items()}}


def ponder(*words, stdin=b"", cwd=None, timeout=60, **env):
    done = subprocess.run([BIN / "ponder", *words], input=stdin, capture_output=True, timeout=timeout, cwd=cwd,
                          env=environment(**env))
    return Run(words, done.returncode, done.stdout, done.stderr)


def expect(run, code, out=None, err=None):
    """`out` and `err`: a text that must be there, "" for silence, None for anything."""
    check(run.code == code, f"exit {code}: {run}")
    for stream, wanted, name in ((run.out, out, "stdout"), (run.err, err, "stderr")):
        if wanted is not None:
            check(wanted in stream if wanted else stream == "", f"{name} has {wanted!r}: {run}")
    return run


def document(run, code):
    """The one JSON document of a --json run, whose exit code must be `code`."""
    check(run.code == code, f"exit {code}: {run}")
    try:
        value = json.loads(run.out)
    except ValueError:
        check(False, f"one JSON document on stdout: {run}")
        return {}
    check(value.get("schema_version") == 1, f"schema_version 1: {run}")
    return value


def stub_home(more=""):
    home = pathlib.Path(tempfile.mkdtemp(dir=ROOM))
    (home / "ponder.toml").write_text('engine = "stub"\nport = 0\n' + more)
    return home


def end(home, **env):
    ponder("--home", home, "stop", "--now", **env)
    shutil.rmtree(home, ignore_errors=True)


def commands_that_look_never_start():
    home = stub_home()
    for command in ("health", "status", "ps", "show"):
        words = [command] + (["@last"] if command == "show" else [])
        expect(ponder("--home", home, *words), 69, out="")
        fields = document(ponder("--home", home, *words, "--json"), 69)
        check(fields["error"]["code"] == "unreachable", f"{command}: {fields}")
    expect(ponder("--home", home, "version"), 0, out="ponder ")
    check(document(ponder("--home", home, "version", "--json"), 0)["daemon"] is None, "version without a daemon")
    check(ponder("--home", home, "doctor").code in (0, 1), "doctor works without a daemon")
    expect(ponder("--home", home, "--no-start", "submit", "x"), 69, out="", err="ponder start")
    expect(ponder("--home", home, "submit", "--no-start", "x"), 69, out="")
    check(not (home / "ponderd.sock").exists(), "nothing was started")
    end(home)


def sixteen_at_once():
    home = stub_home()
    running = [subprocess.Popen([BIN / "ponder", "submit", "--home", home, f"[[stub tokens=1]] number {i}"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                env=environment()) for i in range(16)]
    ids = []
    for process in running:
        out, err = process.communicate(timeout=60)
        check(process.returncode == 0 and ID.match(out.decode()), f"a submit on a cold home: {out} {err}")
        ids.append(out)
    check(len(set(ids)) == 16, f"16 different jobs, got {len(set(ids))}")
    jobs = document(ponder("--home", home, "ps", "-a", "--json"), 0)["jobs"]
    check(len(jobs) == 16, f"ps lists 16 jobs, got {len(jobs)}")
    log = (home / "logs" / "ponderd.log").read_text(errors="replace")
    pid = int((home / "ponderd.lock").read_text())
    daemons = [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline")
               if _cmdline(p).startswith(b"%b\0" % str(BIN / "ponderd").encode()) and str(home).encode() in _cmdline(p)]
    check([int(p.parent.name) for p in daemons] == [pid], f"one daemon, {pid}: {daemons}; {log[-500:]}")
    end(home)


def _cmdline(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def a_crash_changes_no_model():
    """Killed, the daemon comes back with the command line it had; stopped cleanly, with the settings."""
    home = pathlib.Path(tempfile.mkdtemp(dir=ROOM))
    subprocess.run([BIN / "ponderd", "--home", home, "--engine", "stub", "--port", "0", "--detach"], check=True, timeout=60,
                   env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    model = lambda: document(ponder("--home", home, "health", "--json"), 0)["model"]["id"]
    check(model() == "stub", "the stub runs")
    os.kill(int((home / "ponderd.lock").read_text()), signal.SIGKILL)
    expect(ponder("--home", home, "submit", "[[stub tokens=1]] x"), 0)
    check(model() == "stub", f"after kill -9 it is {model()}")
    expect(ponder("--home", home, "serve", "--no-such-option"), 2)
    expect(ponder("--home", home, "stop"), 0)
    check(not (home / "started-with").exists(), "a clean end leaves no command line behind")
    check((home / "stopped").exists(), "the owner's mark is there")
    expect(ponder("--home", home, "serve", "--no-such-option"), 2)
    check((home / "stopped").exists(), "a wrong command line takes no mark back")
    end(home)


def stop_and_start():
    home = stub_home()
    expect(ponder("--home", home, "stop", "--dry-run"), 0, err="no daemon")
    check(not list(home.glob("*stopped*")), "a dry run leaves no marker")
    expect(ponder("--home", home, "start"), 0, out="")
    expect(ponder("--home", home, "start"), 0, err="already")
    job = expect(ponder("--home", home, "submit", LONG), 0).out.strip()
    plan = document(ponder("--home", home, "stop", "--dry-run", "--json"), 0)
    check(plan["daemon_pid"] == int((home / "ponderd.lock").read_text()), f"a dry run names the daemon: {plan}")
    check(plan["worker_pid"], f"a dry run names the worker: {plan}")
    expect(ponder("--home", home, "health"), 0)
    check(document(ponder("--home", home, "health", "--probe", "--json"), 0)["probe"]["ok"] is True, "health --probe")
    stopped = document(ponder("--home", home, "stop", "--json"), 0)
    for which in ("daemon_pid", "worker_pid"):
        check(not pathlib.Path(f"/proc/{stopped[which]}").exists() or _is_zombie(stopped[which]),
              f"{which} is gone: {stopped}")
    words = re.compile(r"stopped by its owner at \d{4}-\d\d-\d\dT[\d:.]+Z; `ponder start`")
    for command in (["submit", "x"], ["ask", "x"], ["wait", job], ["result", job], ["cancel", job], ["models"],
                    ["health"], ["ps"], ["status"], ["show", job]):
        run = expect(ponder("--home", home, *command), 69, out="")
        check(words.search(run.err), f"who stopped it, when, and what to do: {run}")
    error = document(ponder("--home", home, "--json", "submit", "x"), 69)["error"]
    check(words.search(error["message"]), f"the same as JSON: {error}")
    expect(ponder("--home", home, "stop"), 0)
    check(document(ponder("--home", home, "start", "--json"), 0)["started"] is True, "start says that it started")
    expect(ponder("--home", home, "show", job), 0, out=job)
    expect(ponder("--home", home, "stop", "--now"), 0)
    serving = subprocess.Popen([BIN / "ponder", "serve", "--home", home, "--port", "0"], stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, env=environment())
    wait_until(lambda: ponder("--home", home, "health").code == 0, 20, "serve serves")
    expect(ponder("--home", home, "cancel", job), 0, out=f"{job} cancelled\n")
    serving.terminate()
    check(serving.wait(20) == 0, "serve ends 0 on SIGTERM")
    expect(ponder("--home", home, "submit", "again"), 0)  # serve had taken the marker away
    end(home)


def _is_zombie(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def a_daemon_that_cannot_start():
    home = stub_home("no_such_setting = 1\n")
    run = expect(ponder("--home", home, "submit", "x"), 69, out="")
    check("no_such_setting" in run.err, f"the daemon's own error is shown: {run}")
    end(home)


def usage_errors(home):
    cases = [[], ["bogus"], ["submit", "--bogus", "x"], ["submit"], ["submit", "-"], ["ask", "  "],
             ["wait"], ["wait", "--wait-s", "soon", "@last"], ["wait", "--wait-s", "-1", "@last"], ["result"],
             ["result", "--part", "whole", "@last"], ["result", "--offset", "-1", "@last"], ["ps", "--state", "odd"],
             ["ps", "--limit", "0"], ["submit", "--max-answer-tokens", "many", "x"], ["submit", "--deadline-s", "0", "x"],
             ["submit", "--effort", "enormous", "x"], ["submit", "--file", "/no/such/file", "x"],
             ["submit", "--schema", "/no/such/file", "x"],
             ["submit", "--max-reasoning-tokens", "30000", "--max-answer-tokens", "30000", "x"],
             ["cancel"], ["show"], ["stop", "now"], ["status", "a", "b"], ["health", "x"],
             ["submit", "--on-limit", "wait", "x"], ["submit", "--continue-from", "@last", "--mode", "resume", "x"],
             ["submit", "--continue-from", "@last", "--mode", "go_on", "x"], ["continue", "@last"], ["continue"],
             ["completion", "csh"], ["completion"], ["top", "--every-s", "0"], ["unload", "x"], ["prune", "x"], ["--frob"],
             ["submit", "--idempotency-key", "", "x"], ["submit", "--idempotency-key=", "x"], ["ps", "--label", ""]]
    expect(ponder("--home", home, "ask", "[[stub tokens=1]] makes a job"), 0)
    for words in cases:
        run = expect(ponder("--home", home, *words), 2, out="")
        check(len(run.err) > 10, f"a sentence about it: {run}")
        fields = document(ponder("--home", home, *words, "--json"), 2)
        check((fields.get("error") or {}).get("message"), f"and as JSON: {fields}")
        before = ponder("--json", "--home", home, *words)
        check(before.code == 2 and json.loads(before.out).get("error"), f"--json in front: {before}")
    check("bogus" in ponder("bogus").err, "an unknown command is named")
    for mode in ("resume", "answer_now"):
        run = ponder("--home", home, "submit", "--continue-from", "@last", "--mode", mode, "x")
        check("follow_up" in run.err, f"what works instead of {mode} for a completed job: {run}")
    for command in ("ask", "submit", "continue"):
        text = expect(ponder(command, "--help"), 0, err="").out
        check("answer_now" in text and "resume" in text, f"{command} --help offers the modes")
    expect(ponder("--version"), 0, out="ponder ", err="")


def texts(home, work):
    once = lambda *words, **more: document(ponder("--home", home, "ask", "--json", *words, **more), 0)["answer"]
    check(once("[[stub", "tokens=2", "text=ab]]") == "ab ab", "words are joined by blanks")
    check(once("-", stdin=b"[[stub tokens=2 text=cd]]") == "cd cd", "- is stdin")
    check(once(stdin=b"[[stub tokens=2 text=ef]]") == "ef ef", "stdin when it is no terminal")
    check(once("[[stub tokens=1 text=gh]]", stdin=b"[[stub tokens=1 text=no]]") == "gh", "arguments win over stdin")
    check(once("--", "--json is a word [[stub tokens=1 text=ij]]") == "ij", "after -- nothing is an option")
    (work / "a.txt").write_text("first file é")
    (work / "b.txt").write_text("second file")
    (work / "schema.json").write_text('{"type": "object"}')
    plain = document(ponder("--home", home, "submit", "--json", "hello there", cwd=work), 0)["tokens"]["prompt"]
    one = document(ponder("--home", home, "submit", "--json", "hello there", "--file", "a.txt", cwd=work), 0)
    both = document(ponder("--home", home, "submit", "--json", "hello there", "--file", "a.txt", "--file", "b.txt",
                           cwd=work), 0)
    check(plain < one["tokens"]["prompt"] < both["tokens"]["prompt"], "each --file makes the prompt longer")
    (work / "latin1.txt").write_bytes(b"caf\xe9")
    expect(ponder("--home", home, "submit", "x", "--file", "latin1.txt", cwd=work), 2, out="", err="UTF-8")
    expect(ponder("--home", home, "submit", "x", "--file", ".", cwd=work), 2, out="")
    (work / "bad.json").write_text("{")
    expect(ponder("--home", home, "submit", "x", "--schema", "bad.json", cwd=work), 2, out="")
    job = document(ponder("--home", home, "submit", "--json", "[[stub tokens=1]] every option", "--context", "c",
                          "--system", "s", "--effort", "low", "--max-reasoning-tokens", "11",
                          "--max-answer-tokens", "22", "--deadline-s", "33.5", "--on-limit", "stop", "--label", "lab",
                          "--idempotency-key", "key-1", "--pin", "--schema", "schema.json", cwd=work), 0)
    check((job["effort"], job["label"], job["pinned"], job["tokens"]["reserved"]) == ("low", "lab", True, 33),
          f"the options arrive: {job}")
    run = ponder("--home", home, "submit", "something else", "--idempotency-key", "key-1", cwd=work)
    expect(run, 2, out="")
    check(document(ponder("--home", home, "submit", "--json", "something else", "--idempotency-key", "key-1", cwd=work),
                   2)["error"]["code"] == "idempotency_mismatch", "the key with another body")
    check(document(ponder("--home", home, "submit", "--json", "[[stub tokens=1]] n", "--effort", "77"), 0)["effort"]
          in (77, "77"), "an effort in tokens")
    check(document(ponder("--home", home, "submit", "--json", "[[stub tokens=1]] m", "--effort", "max"), 0)["effort"]
          == "xhigh", "a client's word for an effort")


def submits(home, work):
    run = expect(ponder("--home", home, "submit", LONG), 0, err="")
    check(ID.match(run.out), f"the id and a newline, nothing else: {run}")
    job = run.out.strip()
    twin = expect(ponder("--home", home, "submit", LONG), 0)
    check(twin.out == run.out and twin.err, f"an identical live job is returned with a note: {twin}")
    other = expect(ponder("submit", "--home", home, "--force-new", LONG, cwd=work), 0).out.strip()
    check(other != job, "--force-new makes another")
    check(document(ponder("--home", home, "show", "@last", "--json", cwd=work), 0)["job_id"] == other,
          "@last is the newest of this workspace")
    check(document(ponder("--home", home, "show", "@last", "--json"), 0)["job_id"] == job, "and of that one")
    others = [j["job_id"] for j in document(ponder("--home", home, "ps", "-a", "--json"), 0)["jobs"] if j["job_id"] != job]
    length = next(n for n in range(1, 27) if not any(each.startswith(job[:n]) for each in others))
    check(document(ponder("--home", home, "show", job[:length], "--json"), 0).get("job_id") == job, "a unique prefix")
    ambiguous = ponder("--home", home, "show", job[:2])
    expect(ambiguous, 2, out="", err="begin with")
    empty = work / "empty"
    empty.mkdir()
    expect(ponder("--home", home, "show", "@last", cwd=empty), 4, out="")
    listed = document(ponder("--home", home, "ps", "--json"), 0)["jobs"]
    check({job, other} <= {each["job_id"] for each in listed}, "ps lists all that is queued and running")
    check(all(each["state"] in ("queued", "running") and each["answer"] is None for each in listed), "ps, no texts")
    check(document(ponder("--home", home, "ps", "--state", "completed", "--json"), 0)["jobs"][0]["state"]
          == "completed", "ps --state")
    expect(ponder("--home", home, "result", job), 3, out="")
    check(document(ponder("--home", home, "result", job, "--json"), 3)["error"]["job_id"] == job, "not yet, as JSON")
    expect(ponder("--home", home, "status", job), 3)
    both = document(ponder("--home", home, "status", "--job-ids", job, "--job-ids", other, "--json"), 3)["jobs"]
    check([each["job_id"] for each in both] == [job, other], "status --job-ids")
    here = {each["job_id"] for each in document(ponder("--home", home, "status", "--json", cwd=work), 0)["jobs"]}
    check(other in here and job not in here, "status lists the jobs of this directory")
    all_jobs = document(ponder("--home", home, "status", "--all-workspaces", "--json", cwd=work), 0)["jobs"]
    check({job, other} <= {each["job_id"] for each in all_jobs}, "status --all-workspaces")
    started = time.monotonic()
    expect(ponder("--home", home, "wait", "--wait-s", "0.5", job), 124, out="")
    check(0.4 < time.monotonic() - started < 5, "wait --wait-s takes its time")
    timed_out = document(ponder("--home", home, "wait", "--wait-s", "0.2", job, "--json"), 124)
    check(timed_out["error"]["code"] == "timed_out" and timed_out["error"]["job_id"] == job
          and timed_out["error"]["hint"].startswith(f"ponder wait {job}"), f"a spent wait as JSON: {timed_out}")
    expect(ponder("--home", home, "cancel", job, other), 0, out=f"{job} cancelled\n{other} cancelled\n")
    expect(ponder("--home", home, "cancel", job), 0, out=f"{job} cancelled\n")
    expect(ponder("--home", home, "wait", job), 6, out=f"{job} cancelled\n", err="")
    expect(ponder("--home", home, "result", job), 6, out="")
    expect(ponder("--home", home, "status", job), 6)
    expect(ponder("--home", home, "result", job, "--part", "partial"), 0)


def states(home):
    done = expect(ponder("--home", home, "submit", "[[stub tokens=3 text=ok]]"), 0).out.strip()
    cut = expect(ponder("--home", home, "submit", "--effort", "none",
                        "[[stub tokens=9 text=cut fault=exit0 after=4]]"), 0).out.strip()
    failed = expect(ponder("--home", home, "submit", "[[stub tokens=9 fault=out_of_memory after=4]]"), 0).out.strip()
    gone = expect(ponder("--home", home, "submit", "--force-new", LONG), 0).out.strip()
    for job, code, state in ((done, 0, "completed"), (cut, 5, "incomplete"), (failed, 1, "failed")):
        expect(ponder("--home", home, "wait", job), code, out=f"{job} {state}\n", err="")
    expect(ponder("--home", home, "wait", "--any", gone, done), 0, out=f"{done} completed\n", err="")
    expect(ponder("--home", home, "cancel", gone), 0)
    for jobs, code in (([done, gone], 6), ([gone, cut, done], 5), ([done, cut, failed, gone], 1), ([done, done], 0)):
        run = expect(ponder("--home", home, "wait", *jobs), code, err="")
        check(len(run.out.splitlines()) == len(set(jobs)), f"a line for each job: {run}")
    whole = document(ponder("--home", home, "wait", done, cut, "--json"), 5)
    check([j["state"] for j in whole["jobs"]] == ["completed", "incomplete"], f"wait --json: {whole}")
    alone = document(ponder("--home", home, "wait", done, "--json"), 0)
    check(alone["state"] == "completed" and [j["job_id"] for j in alone["jobs"]] == [done], f"wait for one: {alone}")
    for command in ("wait", "result", "status", "show", "cancel"):
        expect(ponder("--home", home, command, UNKNOWN), 4, out="")
        check(document(ponder("--home", home, command, UNKNOWN, "--json"), 4)["error"]["code"] == "job_unknown",
              f"{command} of an unknown job")
    expect(ponder("--home", home, "wait", done, UNKNOWN), 4)
    expect(ponder("--home", home, "result", done), 0, out="ok ok ok", err="")
    for job, code in ((cut, 5), (failed, 1)):
        run = expect(ponder("--home", home, "result", job), code, out="")
        check("partial" in run.err or "thinking" in run.err, f"how to read what there is: {run}")
    partial = expect(ponder("--home", home, "result", cut, "--part", "partial"), 0, out="cut").out
    asked = expect(ponder("--home", home, "ask", "-e", "none", "[[stub tokens=9 text=cut fault=exit0 after=4]]"), 5)
    check(asked.out.strip() == partial.strip() and "incomplete" in asked.err,
          f"a cut answer is on stdout, that it is cut on stderr: {asked}")
    fields = document(ponder("--home", home, "ask", "--json", "[[stub tokens=9 text=cut fault=exit0 after=4]]"), 5)
    check(fields["state"] == "incomplete" and fields["reason"] == "stream_lost", f"a cut answer as JSON: {fields}")
    expect(ponder("--home", home, "ask", "[[stub tokens=9 fault=out_of_memory after=4]]"), 1)
    page = document(ponder("--home", home, "result", done, "--offset", "3", "--limit", "2", "--json"), 0)
    check((page["text"], page["next_offset"], page["total_chars"]) == ("ok", 5, 8), f"a page: {page}")
    emoji = document(ponder("--home", home, "ask", "--json", "[[stub tokens=3 text=a\U0001f600]]"), 0)
    page = document(ponder("--home", home, "result", emoji["job_id"], "--offset", "1", "--limit", "1", "--json"), 0)
    check(page["text"] == "\U0001f600" and page["total_chars"] == 8, f"code points: {page}")
    with tempfile.TemporaryDirectory() as place:
        out = pathlib.Path(place) / "answer.txt"
        expect(ponder("--home", home, "result", done, "-o", out), 0, out="")
        check(out.read_text() == "ok ok ok", "result -o FILE")
        expect(ponder("--home", home, "result", done, "-o", pathlib.Path(place) / "no" / "where"), 74, out="")


def interrupted(home):
    job = expect(ponder("--home", home, "submit", "--force-new", LONG), 0).out.strip()
    for words, printed in ((["wait", job], False), (["ask", "--effort", "none", LONG + " asked"], True)):
        process = subprocess.Popen([BIN / "ponder", "--home", home, *words], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment())
        if printed:
            check(process.stdout.read(4) == b"slow", "ask streams")
        else:
            tasks = f"/proc/{process.pid}/task"
            wait_until(lambda: len(os.listdir(tasks)) > 1, 10, "the wait has a thread for its job")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        check(process.returncode == 130, f"Ctrl-C on {words[0]}: {process.returncode} {out} {err}")
        found = ONE_ID.search(err.decode())
        check(found and (printed or found.group(0) == job), f"the id is said: {err}")
        job = found.group(0) if found else job
        check(document(ponder("--home", home, "show", job, "--json"), 0)["state"] in ("running", "queued"),
              f"after Ctrl-C on {words[0]} the job goes on")
        expect(ponder("--home", home, "cancel", job), 0)
    run = expect(ponder("--home", home, "ask", "--wait-s", "0.3", LONG + " for a while"), 124)
    found = ONE_ID.search(run.err)
    check(found, f"a spent wait says the id: {run}")
    expect(ponder("--home", home, "cancel", found.group(0)), 0)
    late = document(ponder("--home", home, "ask", "--wait-s", "0.3", "--json", LONG + " as JSON"), 124)
    check(late["error"]["job_id"], f"and as JSON: {late}")
    expect(ponder("--home", home, "cancel", late["error"]["job_id"]), 0)


def an_ask_that_was_left_outlives_the_daemon():
    home = stub_home()
    for effort in ("none", "low"):
        task = f"[[stub tokens=40 think=10 rate=20 text=slow]] {effort}"
        run = expect(ponder("--home", home, "ask", "--wait-s", "0.3", "--effort", effort, task), 124)
        job = ONE_ID.search(run.err).group(0)
        os.kill(int((home / "ponderd.lock").read_text().split()[0]), signal.SIGKILL)
        expect(ponder("--home", home, "wait", job), 0, out=f"{job} completed\n")
    end(home)


def on_terminal(words, home):
    """What a terminal would get from `words`."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(environment(TERM="xterm"))
        os.execv(BIN / "ponder", ["ponder", "--home", str(home), *words])
    shown = b""
    while select.select([master], [], [], 20)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    status = os.waitpid(pid, 0)[1]
    os.close(master)
    return os.waitstatus_to_exitcode(status), shown


def terminals(home):
    evil = "\x1b]0;owned\x07"
    job = document(ponder("--home", home, "ask", "--json", f"[[stub tokens=2 text={evil}]]"), 0)["job_id"]
    piped = expect(ponder("--home", home, "result", job), 0)
    check(evil in piped.out, f"a pipe gets the bytes as they are: {piped}")
    for words in (["result", job], ["show", job], ["ask", "--force-new", f"[[stub tokens=2 text={evil}]]"]):
        code, shown = on_terminal(words, home)
        check(code == 0 and b"\x1b]0" not in shown and b"\x07" not in shown, f"{words[0]} on a terminal: {shown}")
    expect(ponder("--home", home, "submit", "--label", evil, "x"), 2, out="")
    # What would start the daemon again after a reboot is for people: scripts get it as JSON only.
    quiet = expect(ponder("--home", home, "submit", "--force-new", "[[stub tokens=2]]"), 0, err="")
    warning = document(ponder("--home", home, "submit", "--force-new", "--json", "[[stub tokens=2]]"), 0)["warning"]
    code, shown = on_terminal(["submit", "--force-new", "[[stub tokens=2]]"], home)
    said = " ".join(shown.decode().split())
    check(code == 0 and (warning is None or warning in said), f"{warning!r} on a terminal: {said!r}")
    check(warning is None or "logout" in warning, f"the warning of --json: {warning!r}; {quiet}")
    code, shown = on_terminal(["submit"], home)
    check(code == 2, f"no text and a terminal on stdin: {code} {shown}")


# T11: the commands in `next` work as they stand.
def next_commands(home):
    job = document(ponder("--home", home, "submit", "--json", LONG + " next"), 0)
    path = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": home}
    ended = document(ponder("--home", home, "cancel", job["job_id"], "--json"), 0)
    for envelope, code in ((job, 6), (ended, 0)):
        done = subprocess.run(envelope["next"]["shell"], shell=True, capture_output=True, env=environment(**path))
        check(done.returncode == code, f"next.shell works as it stands: {envelope['next']} {done}")


def over_tcp():
    home, elsewhere = stub_home(), tempfile.mkdtemp(dir=ROOM)
    port = free_port()
    with Daemon("--port", str(port), home=home) as daemon:
        daemon.start()
        there = {"PONDER_URL": f"http://127.0.0.1:{port}", "HOME": elsewhere}
        keyed = {**there, "PONDER_KEY_FILE": home / "api-key"}
        expect(ponder("ask", "[[stub tokens=2 text=far]]", **keyed), 0, out="far far\n")
        expect(ponder("result", "@last", **keyed), 0, out="far far")
        expect(ponder("health", **keyed), 0, out="ready")
        expect(ponder("ask", "x", **there), 2, out="", err="PONDER_KEY_FILE")
        expect(ponder("stop", **keyed), 2)
        expect(ponder("health", PONDER_URL="http://127.0.0.1:1", HOME=elsewhere), 69, out="")
        expect(ponder("submit", "x", PONDER_URL="ftp://nowhere", HOME=elsewhere), 2, out="")
    shutil.rmtree(home, ignore_errors=True)
    shutil.rmtree(elsewhere, ignore_errors=True)


def places():
    user = pathlib.Path(tempfile.mkdtemp(dir=ROOM))
    (user / ".config" / "ponder").mkdir(parents=True)
    (user / ".config" / "ponder" / "ponder.toml").write_text('engine = "stub"\nport = 0\n')
    bare = {"HOME": str(user), "PATH": os.environ["PATH"]}
    done = subprocess.run([BIN / "ponder", "submit", "[[stub tokens=1]]"], env=bare, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=60)
    check(done.returncode == 0, f"HOME alone is enough: {done}")
    state = user / ".local" / "state" / "ponder"
    for name in ("ponder.db", "ponderd.sock", "ponderd.lock", "api-key", "logs/ponderd.log"):
        file = state / name
        check(file.exists() and file.stat().st_mode & 0o77 == 0, f"{name} is private, in the state directory")
    subprocess.run([BIN / "ponder", "stop", "--now"], env=bare, capture_output=True, timeout=60)
    shutil.rmtree(user, ignore_errors=True)


def going_on(home, work):
    cut = document(ponder("--home", home, "submit", "[[stub think=60 tokens=5]] to go on from", "--max-reasoning-tokens",
                          "8", "--json", cwd=work), 0)["job_id"]
    expect(ponder("--home", home, "wait", cut), 5)
    more = expect(ponder("--home", home, "continue", cut, cwd=work), 0, err="").out.strip()
    expect(ponder("--home", home, "wait", more), 0)
    job = document(ponder("--home", home, "show", more, "--json"), 0)
    check(job["parent_id"] == cut and not job["forced_answer"], f"continue resumes: {job}")
    now = expect(ponder("--home", home, "continue", "--answer-now", cut, cwd=work), 0).out.strip()
    expect(ponder("--home", home, "wait", now), 0)
    check(document(ponder("--home", home, "show", now, "--json"), 0)["forced_answer"] is True, "--answer-now")
    next_turn = expect(ponder("--home", home, "continue", more, "and", "then?", cwd=work), 0).out.strip()
    expect(ponder("--home", home, "wait", next_turn), 0)
    expect(ponder("--home", home, "result", more), 0)
    check(more in expect(ponder("--home", home, "prune", "--dry-run", cwd=work), 0).out, "prune --dry-run names it")
    check(more in expect(ponder("--home", home, "prune", cwd=work), 0).out.split(), "what was read goes")
    check(document(ponder("--home", home, "show", more, "--json"), 0)["state"] == "expired", "and is expired")
    expect(ponder("--home", home, "show", now), 0)


def smaller_commands():
    home = stub_home()
    for shell in ("bash", "zsh", "fish"):
        script = expect(ponder("completion", shell), 0, err="").out
        check("answer" in script or "unload" in script, f"{shell} knows the commands")
        if shutil.which(shell):
            run = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=20)
            check(run.returncode == 0, f"{shell} reads it: {run.stderr}")
    check('engine = "stub"' in expect(ponder("--home", home, "config"), 0).out, "config shows the settings")
    check(expect(ponder("--home", home, "config", "--path"), 0).out.strip() == str(home / "ponder.toml"), "and the file")
    expect(ponder("--home", home, "top"), 69)
    expect(ponder("--home", home, "unload"), 69)
    expect(ponder("--home", home, "start"), 0)
    job = expect(ponder("--home", home, "submit", LONG), 0).out.strip()
    check("running" in expect(ponder("--home", home, "top"), 0).out, "top, into a pipe, once")
    view = document(ponder("--home", home, "top", "--json"), 0)
    check(view["health"]["state"] in ("ready", "busy") and [j["job_id"] for j in view["jobs"]] == [job], f"top --json: {view}")
    shown = expect(ponder("--home", home, "show", job), 0, out="request: [[stub tokens=4000").out
    check(re.search(r"^seed: \d+$", shown, re.M), f"show tells the seed: {shown}")
    wait_for = time.monotonic() + 10
    while document(ponder("--home", home, "show", job, "--json"), 0)["state"] == "queued" and time.monotonic() < wait_for:
        time.sleep(0.05)
    expect(ponder("--home", home, "unload"), 3, out="")
    expect(ponder("--home", home, "cancel", job), 0)
    expect(ponder("--home", home, "unload"), 0, out="")
    check(document(ponder("--home", home, "unload", "--json"), 0)["was_loaded"] is False, "unload again")
    expect(ponder("--home", home, "ask", "[[stub tokens=1 text=hi]]"), 0, out="hi")
    before = document(ponder("--home", home, "health", "--json"), 0)["engine"]["pid"]
    job = expect(ponder("--home", home, "submit", "[[stub tokens=120 rate=40]] over a restart"), 0).out.strip()
    waiting = subprocess.Popen([BIN / "ponder", "--home", home, "wait", job], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, env=environment())
    wait_until(lambda: document(ponder("--home", home, "show", job, "--json"), 0)["phase"] == "answering", 10, "it answers")
    expect(ponder("--home", home, "restart"), 0, out="")
    out, err = waiting.communicate(timeout=40)
    check((waiting.returncode, out.decode()) == (0, f"{job} completed\n"), f"a wait outlives a restart: {out} {err}")
    check(document(ponder("--home", home, "health", "--json"), 0)["engine"]["pid"] != before, "restart")
    end(home)


def main():
    smaller_commands()
    commands_that_look_never_start()
    a_daemon_that_cannot_start()
    sixteen_at_once()
    a_crash_changes_no_model()
    stop_and_start()
    places()
    over_tcp()
    an_ask_that_was_left_outlives_the_daemon()
    home = stub_home()
    work = pathlib.Path(tempfile.mkdtemp(dir=ROOM))
    for part in (lambda: usage_errors(home), lambda: texts(home, work), lambda: submits(home, work), lambda: going_on(home, work),
                 lambda: states(home), lambda: interrupted(home), lambda: terminals(home), lambda: next_commands(home)):
        part()
    end(home)
    shutil.rmtree(work, ignore_errors=True)


try:
    main()
finally:
    for settings in ROOM.glob("*/ponder.toml"):  # a test that broke off leaves its daemon
        subprocess.run([BIN / "ponder", "--home", settings.parent, "stop", "--now"], capture_output=True, timeout=60)
    shutil.rmtree(ROOM, ignore_errors=True)
finish("contract_cli_test")
