#!/usr/bin/env python3
"""P5: no stream ends silently.

The daemon's side: ten kinds of fault under chat completions and under a job's events. Each stream
ends with its API's own mark (`[DONE]` behind a finish_reason; the event `end`) or with an explicit
error event, and the mark says the truth.

The clients' side: `ponder` and `ponder-mcp` get every answer they ever read cut at every byte (a
sample in the short size), from a stand-in for the daemon that then hangs up: none may take the
piece for the whole. The reader itself is cut at every byte in tests/unit/client/stream_cut_test.cc.

vercel/ai#19165, BerriAI/litellm#32159, ENTERPILOT/GoModel#1017: a truncated stream reported as
finished, a stop message invented.

Planted: `silent_end`, a proxy that swallows error events and ends the stream in good order;
`invented_end`, one that finishes a cut stream with an end of its own.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import socketserver
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import BIN, PLANTED, Daemon, Mcp, check, cli, finish, json, socket, subprocess, threading, time, wait_until
import profile
import raw_http
from raw_http import request

STALL_S = 0.4
ENDS_WITHIN_S = 20
WORDS = "[[stub tokens=60 think=4 rate=400]] "
LONG = "[[stub tokens=4000 think=4 rate=300]] "

# (name, markers, chat fields, job fields, what is done from outside, chat's endings, the job's end states)
FAULTS = [
    ("exit0", WORDS + "[[stub fault=exit0 after=20]]", {}, {}, None, {"error"}, {"incomplete"}),
    ("crash", WORDS + "[[stub fault=crash after=20]]", {}, {}, None, {"error"}, {"failed"}),
    ("hang", WORDS + "[[stub fault=hang after=20]]", {}, {}, None, {"error"}, {"incomplete"}),
    ("invalid_utf8", WORDS + "[[stub fault=invalid_utf8 after=20]]", {}, {}, None, {"stop"}, {"completed"}),
    ("endless_thinking", "[[stub fault=endless_thinking rate=4000]]", {"max_tokens": 200}, {"max_reasoning_tokens": 150, "max_answer_tokens": 50}, None,
     {"length"}, {"incomplete"}),
    ("loop", "[[stub tokens=20000 think=2 rate=20000]] [[stub fault=loop after=10]]", {}, {}, None, {"error"}, {"incomplete"}),
    ("out_of_memory", WORDS + "[[stub fault=out_of_memory after=20]]", {}, {}, None, {"error"}, {"failed"}),
    ("device_lost", WORDS + "[[stub fault=device_lost after=20]]", {}, {}, "cancel_later", {"error"}, {"cancelled"}),
    ("output_limit", LONG, {"max_tokens": 30}, {"max_reasoning_tokens": 50, "max_answer_tokens": 30}, None, {"length"}, {"incomplete"}),
    ("worker_killed", LONG, {}, {"max_answer_tokens": 100, "max_reasoning_tokens": 50}, "kill_worker", {"error"}, {"incomplete", "completed"}),
    ("worker_stopped", LONG, {}, {}, "stop_worker", {"error"}, {"incomplete"}),
    ("deadline", LONG, None, {"deadline_s": 0.3}, None, set(), {"incomplete"}),
    ("cancel", LONG, None, {}, "cancel", set(), {"cancelled"}),
    ("daemon_stopped", LONG, {}, {}, "stop_daemon", {"error"}, {"error"}),
]


class Stream:
    """An open event stream; its events as they come, and how it ended."""

    def __init__(self, path, data):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.connect(str(path))
        self.s.sendall(data)
        self.raw, self.closed = b"", False

    def read(self, until, seconds):
        """Reads until `until(raw)` or the end; False if neither came in time."""
        end = time.monotonic() + seconds
        while not until(self.raw) and not self.closed:
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.s.settimeout(left)
            try:
                more = self.s.recv(65536)
            except TimeoutError:
                return False
            except ConnectionResetError:
                more = b""
            self.raw += more
            self.closed = not more
        return True

    def head(self):
        return self.raw.partition(b"\r\n\r\n")[0]

    def status(self):
        return int(self.head().split()[1]) if self.head() else 0

    def events(self):
        """[(event, data)] of what has come, and whether the stream was ended in good order."""
        body = self.raw.partition(b"\r\n\r\n")[2]
        text, whole = b"", False
        while True:
            size, mark, rest = body.partition(b"\r\n")
            if not mark:
                break
            n = int(size, 16)
            if n == 0:
                whole = rest.startswith(b"\r\n")
                break
            text, body = text + rest[:n], rest[n + 2:]
        found = []
        for block in text.decode("utf-8", "replace").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
            if "data" in fields:
                found.append((fields.get("event", ""), fields["data"]))
        return found, whole


def chat_stream(path, text, fields):
    body = json.dumps({"stream": True, "messages": [{"role": "user", "content": text}], **fields}).encode()
    return Stream(path, request("POST /v1/chat/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close",
                                f"Content-Length: {len(body)}", body=body))


def events_stream(path, job_id):
    return Stream(path, request(f"GET /v1/jobs/{job_id}/events HTTP/1.1", "Host: localhost", "Connection: close"))


def chat_ending(stream):
    """stop, length or tool_calls as the client is told; error; or silent."""
    if stream.status() != 200:
        return "error" if stream.status() >= 400 and b'"error"' in stream.raw else "silent"
    events, whole = stream.events()
    data = [d for _, d in events]
    errors = [d for d in data if '"error"' in d]
    reasons = [json.loads(d)["choices"][0]["finish_reason"] for d in data if d.startswith("{") and '"choices":[{' in d]
    finished = [r for r in reasons if r]
    if data and data[-1] == "[DONE]" and whole and len(finished) == 1 and not errors:
        return finished[0]
    if errors and "[DONE]" not in data and not finished and json.loads(errors[-1])["error"]["message"]:
        return "error"
    return "silent"


def job_ending(stream):
    if stream.status() != 200:
        return "error" if stream.status() >= 400 and b'"error"' in stream.raw else "silent"
    events, whole = stream.events()
    if not events or not whole:
        return "silent"
    event, data = events[-1]
    if event == "end" and sum(e == "end" for e, _ in events) == 1:
        return json.loads(data)["state"]
    return "error" if event == "error" and json.loads(data)["error"]["message"] else "silent"


class SilentProxy:
    """Swallows every error event and ends the stream as if nothing had been."""

    def __init__(self, upstream):
        self.path = str(upstream) + ".planted"

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(str(upstream))
                    s.sendall(self.request.recv(1 << 20))
                    while data := s.recv(65536):
                        self.request.sendall(re.sub(rb'[0-9a-f]+\r\n(?:event: error\n)?data: \{"error".*?\r\n', b"", data, flags=re.S))

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(self.path, Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def daemon_side():
    rounds = profile.size(2, 16)
    counts = {"streams": 0, "silent": 0, "late": 0}
    with Daemon("--engine", "stub") as daemon:
        (daemon.home / "ponder.toml").write_text(f"stall_s = {STALL_S}\nmax_attempts = 1\n")
        daemon.start()
        path = SilentProxy(daemon.socket).path if PLANTED == "silent_end" else daemon.socket
        for name, markers, chat_fields, job_fields, outside, chat_ends, job_ends in FAULTS:
            if PLANTED and name != "exit0":
                continue
            if name == "daemon_stopped":
                stopped_daemon(daemon, path, rounds, markers, counts)
                continue
            for n in range(rounds):
                rested(daemon)
                if chat_fields is not None:
                    one_stream(daemon, f"{name} under chat", chat_stream(path, f"{n} {markers}", chat_fields), outside, None, chat_ending, chat_ends, counts)
                job_id = daemon.submit(f"{n} {markers}", force_new=True, **job_fields).json["job_id"]
                one_stream(daemon, f"{name} under events", events_stream(path, job_id), outside, job_id, job_ending, job_ends, counts)
    profile.figure("P5", f"streams with one of {len(FAULTS)} kinds of fault; silent ends; never ended", "{streams}; {silent}; {late}".format(**counts),
                   f">= {profile.size(40, 400)}; 0; 0")
    check(PLANTED or counts["streams"] >= profile.size(40, 400), f"{counts['streams']} faults")


def rested(daemon):
    """Between workers that die one after the other the daemon pauses, longer each time; a new one does not."""
    if daemon.call("GET", "/health").json["engine"]["restarts"] > 0:
        daemon.stop()
        daemon.start()


def one_stream(daemon, what, stream, outside, job_id, ending, wanted, counts):
    has_text = lambda raw: raw.count(b'"content":"') > 3 or b"event: answer" in raw
    if outside and outside != "cancel_later":
        stream.read(has_text, 10)
    if outside in ("kill_worker", "stop_worker"):  # the one that has written the text
        os.kill(daemon.call("GET", "/health").json["engine"]["pid"], signal.SIGKILL if outside == "kill_worker" else signal.SIGSTOP)
    elif outside == "cancel" or (outside == "cancel_later" and job_id):
        if outside == "cancel_later":  # a lost device is nobody's fault: the job would be tried for ever
            wait_until(lambda: daemon.try_health().get("engine", {}).get("restarts", 0) > 0, 10, f"{what}: the worker is replaced")
        daemon.call("POST", f"/v1/jobs/{job_id}/cancel", {})
    judge(what, stream, ending, wanted, counts)
    if outside == "kill_worker" and job_id:
        daemon.wait_terminal(job_id, 20)


def judge(what, stream, ending, wanted, counts):
    counts["streams"] += 1
    if not check(stream.read(lambda raw: False, ENDS_WITHIN_S), f"{what}: ended within {ENDS_WITHIN_S} s: {stream.raw[-200:]!r}"):
        counts["late"] += 1
        return
    got = ending(stream)
    if not check(got != "silent", f"{what}: a silent end: {stream.raw[-300:]!r}"):
        counts["silent"] += 1
    else:
        check(got in wanted, f"{what}: ends as {got}, wanted {wanted}: {stream.raw[-300:]!r}")


def stopped_daemon(daemon, path, rounds, markers, counts):
    for n in range(rounds):
        job_id = daemon.submit(f"{n} stop {markers}", force_new=True).json["job_id"]
        streams = [(f"daemon stopped under events {n}", events_stream(path, job_id), job_ending),
                   (f"daemon stopped under chat {n}", chat_stream(path, f"{n} {markers}", {}), chat_ending)]
        for what, stream, _ in streams:
            stream.read(lambda raw: b"data: " in raw, 10)
        check(daemon.stop() == 0, "the daemon stops cleanly")
        for what, stream, ending in streams:
            judge(what, stream, ending, {"error"}, counts)
        daemon.start()
        daemon.call("POST", f"/v1/jobs/{job_id}/cancel", {})


# The clients' side.

def classify(method, target):
    path, _, query = target.partition("?")
    path = re.sub(r"/v1/jobs/[a-z0-9]{26}", "/v1/jobs/ID", path)
    return f"{method} {path}"


def read_request(s):
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
    while length and len(body) < int(length.group(1)):
        more = s.recv(65536)
        if not more:
            return None
        body += more
    method, target = head.split(b" ", 2)[:2]
    return classify(method.decode(), target.decode()), head + b"\r\n\r\n" + body


class StandIn:
    """On the socket of `home`, instead of a daemon: passes on and keeps what a real one answers
    (record), or gives what was kept, with one answer cut (cut)."""

    def __init__(self, home, upstream=None):
        self.upstream = upstream
        self.kept, self.cut_kind, self.cut_at, self.was_cut = {}, None, 0, False
        stand_in = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                try:
                    stand_in.serve(self.request)
                except OSError:
                    pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
            request_queue_size = 64

        self.server = Server(str(home / "ponderd.sock"), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def serve(self, s):
        kind_and_request = read_request(s)
        if kind_and_request is None:
            return
        kind, data = kind_and_request
        if self.upstream:
            with socket.socket(socket.AF_UNIX) as up:
                up.connect(str(self.upstream))
                up.sendall(data)
                answer = raw_http.read_to_end(up, 30)[0]
            self.kept[kind] = answer
            s.sendall(answer)
            return
        if self.was_cut:
            # The daemon that hung up is gone; what is there now knows nothing of the job.
            body = b'{"error":{"type":"not_found_error","code":"job_unknown","message":"there is no job with this id","param":null,"hint":null,"job_id":null}}'
            s.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return
        answer = self.kept.get(kind, b"")
        if kind == self.cut_kind:
            self.was_cut = True
            answer = answer[:self.cut_at]
            if PLANTED == "invented_end" and b"\r\n\r\n" in answer and kind.endswith("/events"):
                answer = mend(answer)
        s.sendall(answer)

    def cut(self, kind, at):
        self.cut_kind, self.cut_at, self.was_cut = kind, at, False

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def mend(answer):
    """What a kind proxy makes of a cut stream: the whole events, and an end of its own."""
    head, _, body = answer.partition(b"\r\n\r\n")
    kept = b""
    while True:
        size, mark, rest = body.partition(b"\r\n")
        if not mark or len(rest) < int(size, 16) + 2:
            break
        kept += size + mark + rest[:int(size, 16) + 2]
        body = rest[int(size, 16) + 2:]
    end = b'event: end\ndata: {"job_id":"' + b"0" * 26 + b'","state":"completed"}\n\n'
    return head + b"\r\n\r\n" + kept + b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end)


def whole_from(kind, answer):
    """The first length of `answer` that may pass for all of it: everything, or with a stream all
    through its last event, since `end` is the mark."""
    if not kind.endswith("/events"):
        return len(answer)
    return answer.rindex(b"event: end\n") + answer[answer.rindex(b"event: end\n"):].index(b"\n\n") + 2


def positions(kind, answer, count):
    """Up to `count` cuts below the whole; the last bytes always, where a mistake is likeliest."""
    last = whole_from(kind, answer)
    if count >= last:
        return list(range(last))
    return sorted({int(i * last / count) for i in range(count)} | {last - 1, last - 2, last - 3})


def home_of(parent, name):
    home = pathlib.Path(parent) / name
    home.mkdir(mode=0o700)
    return home


def clients_side():
    parent = tempfile.mkdtemp(prefix="ponder-cuts-")
    totals = {"cuts": 0, "success": 0}
    try:
        with Daemon("--engine", "stub") as daemon:
            daemon.start()
            job_id = daemon.submit("recorded [[stub tokens=10 think=3 rate=300]]").json["job_id"]
            daemon.wait_terminal(job_id)
            programs(parent, daemon, job_id, totals)
            if not PLANTED:
                over_mcp(parent, daemon, job_id, totals)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    profile.figure("P5", "answers cut below their end for ponder and ponder-mcp; taken as success", "{cuts}; {success}".format(**totals),
                   f">= {profile.size(400, 10_000)}; 0")
    check(PLANTED or totals["cuts"] >= profile.size(400, 10_000), f"{totals['cuts']} cuts")


def programs(parent, daemon, job_id, totals):
    """Each command of ponder that reads answers, its conversation recorded and then cut."""
    commands = {"ask": ("ask", "a question [[stub tokens=10 think=3 rate=300]]"), "logs": ("logs", "-f", job_id), "result": ("result", job_id),
                "wait": ("wait", job_id), "submit": ("submit", "[[stub tokens=3]]"), "show": ("show", job_id), "ps": ("ps", "-a"),
                "cancel": ("cancel", job_id), "pin": ("pin", job_id), "health": ("health",), "models": ("models",)}
    if PLANTED:
        commands = {"logs": commands["logs"]}
    workers = 12
    homes = [home_of(parent, f"cut-{i}") for i in range(workers)]
    stand_ins = [StandIn(home) for home in homes]
    for name, command in commands.items():
        recorder = StandIn(home_of(parent, f"record-{name}"), daemon.socket)
        whole = cli(pathlib.Path(parent) / f"record-{name}", *command)
        check(whole.returncode == 0, f"{name}: the whole conversation succeeds: {whole.returncode} {whole.stderr[:200]}")
        kept = dict(recorder.kept)
        recorder.close()
        work = []
        for kind, answer in kept.items():
            streaming = kind.endswith("/events")
            count = profile.size(60 if streaming else 8, 1500 if streaming else 150)
            work += [(kind, at) for at in positions(kind, answer, 15 if PLANTED else count)]

        def run(i):
            out = []
            stand_ins[i].kept = kept
            for kind, at in work[i::workers]:
                stand_ins[i].cut(kind, at)
                done = cli(homes[i], "--no-start", *command)
                out.append((kind, at, stand_ins[i].was_cut, done))
            return out

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for results in pool.map(run, range(workers)):
                for kind, at, was_cut, done in results:
                    totals["cuts"] += was_cut
                    check(was_cut, f"{name}: {kind} was asked for")
                    # An ask that has read its stream to the end needs no second look at the answer, and what
                    # a job was asked is a remark of show's.
                    told_already = kind.endswith("/result") and (name == "ask" and done.stdout == whole.stdout or name == "show")
                    if not check(done.returncode != 0 or told_already, f"ponder {name}: {kind} cut at {at} of {len(kept[kind])} is taken as success: {done.stdout[-100:]!r}"):
                        totals["success"] += 1
                    check(done.returncode == 0 or done.stderr.strip(), f"ponder {name}: {kind} cut at {at}: it says why")
                    check(done.returncode in (0, 1, 3, 4, 69, 74, 75), f"ponder {name}: {kind} cut at {at}: exit {done.returncode} {done.stderr[:100]}")
    for stand_in in stand_ins:
        stand_in.close()


def over_mcp(parent, daemon, job_id, totals):
    calls = {"status": {"job_id": job_id}, "result": {"job_id": job_id}, "cancel": {"job_id": job_id}, "health": {}, "submit": {"task": "[[stub tokens=3]]"},
             "ask": {"question": "a question [[stub tokens=10 think=3 rate=300]]", "wait_s": 5}}
    for tool, arguments in calls.items():
        home = home_of(parent, f"mcp-{tool}")
        recorder = StandIn(home, daemon.socket)
        mcp = Mcp(home, extra=("--no-start",))
        whole = mcp.tool(tool, **arguments)
        check(not whole.get("isError"), f"{tool}: the whole conversation succeeds: {str(whole)[:200]}")
        kept = dict(recorder.kept)
        recorder.close()
        (home / "ponderd.sock").unlink(missing_ok=True)
        stand_in = StandIn(home)
        stand_in.kept = kept
        for kind, answer in kept.items():
            if kind == "GET /health" and tool != "health":
                continue  # a remark beside the answer, which is whole without it
            for at in positions(kind, answer, profile.size(25, 300)):
                stand_in.cut(kind, at)
                result = mcp.tool(tool, **arguments)
                totals["cuts"] += 1
                state = (result.get("structuredContent") or {}).get("state")
                good = not result.get("isError") and state in ("completed", "ready", "busy", "queued", "cancelled", None)
                if tool == "health":  # a daemon that cannot be heard is a finding, and not an error
                    good = state in ("ready", "busy")
                if not check(not good, f"ponder-mcp {tool}: {kind} cut at {at} of {len(answer)} is taken as success: {str(result)[:200]}"):
                    totals["success"] += 1
        mcp.close()
        stand_in.close()


def main():
    if PLANTED != "invented_end":
        daemon_side()
    if PLANTED != "silent_end":
        clients_side()
    if profile.FULL and not PLANTED:
        tests = BIN.parent / "tests" / "client_test"
        done = subprocess.run([tests, "--gtest_filter=StreamCut.*"], capture_output=True, text=True, timeout=600)
        print("\n".join(line for line in done.stdout.splitlines() if line.startswith("FIGURE")))
        check(done.returncode == 0, f"the reader cut at every byte: {done.stdout[-2000:]}")
    finish("streams")


main()
