"""What users of other bridges, queues and model servers reported, where no other test holds it: each as
small as it can be, its report named beside it. docs/reliability.md has the map of all of them.

    reports_test.py BIN_DIR
"""
import http.server
import json
import pathlib
import socketserver
import subprocess
import tempfile
import threading

from harness import ROOT, Daemon, Mcp, check, cli, finish, wait_until

LONG = "[[stub tokens=4000 rate=20 text=slow]]"


def structured(result):
    return result.get("structuredContent") or {}


def text_of(result):
    return result["content"][0]["text"]


# T11, anthropics/claude-code#61797: a push to an idle session was lost. The wait command that submit tells
# is the push: run as it stands, by any shell, anywhere, it ends with the job, and its exit code is the job's.
def the_wait_command_is_the_notification():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        mcp = Mcp(daemon.home)
        for task, code, state in (("[[stub tokens=30 rate=60 text=a]]", 0, "completed"),
                                  ("[[stub tokens=30 rate=60 text=b fault=exit0 after=4]]", 5, "incomplete"),
                                  ("[[stub tokens=9 text=c fault=out_of_memory after=4]]", 1, "failed")):
            told = mcp.tool("submit", task=task)
            command = structured(told)["next"]["shell"]
            check(command in text_of(told), "the text that an agent reads holds the command")
            done = subprocess.run(["/bin/sh", "-c", command], cwd="/", env={"PATH": "/usr/bin:/bin"}, timeout=60,
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL)
            check((done.returncode, done.stdout) == (code, f"{structured(told)['job_id']} {state}\n"),
                  f"`{command}` ends with the job: {done}")
        mcp.close()


# T13, openai/codex#8726, pal-mcp-server#146: after a restart a conversation could not be gone on with.
def a_conversation_outlives_every_process():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        mcp = Mcp(daemon.home)
        first = structured(mcp.tool("ask", question="first turn [[stub tokens=50 text=remember]]", wait_s=20))
        mcp.close()
        daemon.kill()
        daemon.start()
        daemon.stop()
        daemon.start()
        mcp = Mcp(daemon.home)
        alone = structured(mcp.tool("submit", task="second turn [[stub tokens=1]]"))
        child = structured(mcp.tool("submit", task="second turn [[stub tokens=1]]", continue_from=first["job_id"]))
        grown = child["tokens"]["prompt"] - alone["tokens"]["prompt"]
        check(child["parent_id"] == first["job_id"], "it names its parent")
        check(grown >= first["tokens"]["prompt"] - 20 + 50, f"the model reads both earlier turns: {grown} tokens more")
        check(daemon.wait_terminal(child["job_id"])["state"] == "completed", "and it answers")
        mcp.close()


# T28, picoclaw#966, hermes-agent#99622: all thinking and no answer was a success, or was run again and again.
def a_thought_that_never_ends_is_told_with_both_ways_on():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        mcp = Mcp(daemon.home)
        result = mcp.tool("ask", question="[[stub fault=endless_thinking]]", effort=40)
        check(result["isError"] and "structuredContent" not in result, "it is an error")
        for words in ("reasoning_exhausted", "40 reasoning", "resume", "answer_now", '"part":"reasoning"'):
            check(words in text_of(result), f"it says {words}: {text_of(result)}")
        jobs = daemon.all_jobs()
        check([(j["state"], j["attempt"]) for j in jobs] == [("incomplete", 1)], f"it ran once: {jobs}")
        mcp.close()


# T32, codexmcp#4, gemini-mcp-tool#6: a large answer was refused, or all but its beginning was lost.
def a_large_answer_comes_whole():
    word, count = "0123456789\U0001f600", 25_000
    whole = " ".join([word] * count)
    with Daemon("--engine", "stub", "--ctx", "100000") as daemon, tempfile.TemporaryDirectory() as work:
        daemon.start()
        mcp = Mcp(daemon.home, cwd=work)
        job_id = structured(mcp.tool("submit", task=f"[[stub tokens={count} rate=1e6 text={word}]]", effort="none",
                                     max_answer_tokens=count + 10))["job_id"]
        check(daemon.wait_terminal(job_id)["state"] == "completed", "it completes")
        got, offset = "", 0
        while offset is not None:
            page = structured(mcp.tool("result", job_id=job_id, offset=offset, limit=20_000))
            check(len(page["answer"]) <= 20_000, "a page keeps its limit")
            got, offset = got + page["answer"], page["next_offset"]
        check(got == whole, f"{len(got)} characters in pages are the {len(whole)} of the answer")
        mcp.tool("result", job_id=job_id, out_file="answer.txt")
        check(pathlib.Path(work, "answer.txt").read_text() == whole, "out_file holds all of it")
        check(cli(daemon.home, "result", job_id).stdout == whole, "so does the command line")
        mcp.close()


# T38, modelcontextprotocol/servers#2795, hermes-agent#47661: paths were rewritten on the way into WSL.
def paths_are_taken_as_they_are():
    with Daemon("--engine", "stub") as daemon, tempfile.TemporaryDirectory() as work:
        daemon.start()
        names = ["C:\\notes.txt", "C:/notes.txt", "\\\\wsl$\\notes.txt", "a\\b.txt", "~notes.txt", "%HOME%.txt", "$HOME.txt",
                 "a b.txt", "caf\u00e9.txt", "-o.txt"]
        mcp = Mcp(daemon.home, cwd=work)
        for name in ["C:\\Users\\me\\notes.txt", "D:/notes.txt", "~/notes.txt", "$HOME/notes.txt"]:
            result = mcp.tool("ask", question="[[stub tokens=1]]", files=[name])
            check(result["isError"] and name in text_of(result), f"{name} is not there, and nothing else is read")
        plain = structured(mcp.tool("submit", task="[[stub tokens=1]]", force_new=True))["tokens"]["prompt"]
        for name in names:
            path = pathlib.Path(work, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("its text " * 20)
            sent = structured(mcp.tool("submit", task="[[stub tokens=1]]", files=[name], force_new=True))
            check(sent and sent["tokens"]["prompt"] > plain + 40, f"the file with the name {name!r} is the one that is read")
        mcp.close()


# T7, mcp-gsuite#21, openai/codex#20925: a cancelled call crashed the server or was answered late. The job of
# a call that was given up stays, also where it has not begun: a client's time-out says the same as its user.
def a_call_given_up_while_its_job_waits():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        mcp = Mcp(daemon.home)
        for number in range(2):  # both interactive places
            mcp.begin("tools/call", {"name": "ask", "arguments": {"question": f"{LONG} {number}"}})
        wait_until(lambda: daemon.call("GET", "/health").json["queue"]["running"] == 2, 10, "both places are taken")
        waits = mcp.begin("tools/call", {"name": "ask", "arguments": {"question": "[[stub tokens=2 text=third]]"}})
        third = wait_until(lambda: next((j for j in daemon.all_jobs() if j["state"] == "queued"), None), 10, "one waits")
        mcp._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waits}})
        for job in daemon.all_jobs():
            if job["state"] == "running":
                daemon.call("POST", f"/v1/jobs/{job['job_id']}/cancel")
        check(daemon.wait_terminal(third["job_id"])["state"] == "completed", "its job is made all the same")
        mcp.request("ping")
        check(waits not in mcp.replies, "and the call is not answered")
        listed = structured(mcp.tool("status"))["jobs"]
        check(third["job_id"] in [j["job_id"] for j in listed], "status lists it")
        mcp.close()


# T23, ggml-org/llama.cpp#22447, llama-swap#588: a model swap killed the request that ran.
def a_model_at_work_is_not_taken_away():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        job_id = daemon.submit(LONG).json["job_id"]
        wait_until(lambda: daemon.job(job_id)["phase"] == "answering", 10, "it answers")
        before = daemon.call("GET", "/health").json["engine"]["pid"]
        refused = cli(daemon.home, "unload")
        check(refused.returncode == 3 and job_id in refused.stderr, f"unload is refused with the job's id: {refused}")
        check(daemon.call("GET", "/health").json["engine"]["pid"] == before, "the worker is the same")
        check(daemon.job(job_id)["state"] == "running", "and the job goes on")
        daemon.call("POST", f"/v1/jobs/{job_id}/cancel")


def a_model_that_comes_back_is_used():
    """A file that was missing or broken costs the jobs of that time, and no restart of the daemon."""
    for name, before in (("missing", None), ("broken", b"GGUF" + bytes(100))):
        with tempfile.TemporaryDirectory(prefix="ponder-e2e-") as top:
            file = pathlib.Path(top, "m.gguf")
            if before:
                file.write_bytes(before)
            with Daemon("--model", file, home=pathlib.Path(top, "home")) as daemon:
                daemon.home.mkdir()
                daemon.start(wait_ready=False)
                wait_until(lambda: daemon.try_health().get("state") == "failed", 20, f"a {name} file is told")
                first = daemon.submit("2 + 2 = ?", effort="none").json["job_id"]
                check(daemon.wait_terminal(first, 20)["reason"] == "model_missing", f"a job with a {name} file")
                file.unlink(missing_ok=True)
                file.symlink_to(ROOT / "models/pebble/pebble-q4_k_m.gguf")
                second = daemon.submit("2 + 2 = ?", effort="none", force_new=True).json["job_id"]
                job = daemon.wait_terminal(second, 30)
                check(job["state"] == "completed", f"after a {name} file has come back a job is {job['state']}")
                check(daemon.job(first)["state"] == "failed", "what ended stays as it is")
                check(daemon.try_health().get("state") in ("ready", "busy"), "health says so")


class OtherVersion:
    """A daemon of another version: what it does not know is 404, what it knows has more fields."""

    def __init__(self, home, version):
        outer = self
        self.envelope = {"job_id": "0" * 26, "state": "completed", "answer": "42", "new_field": {"x": 1}}

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def reply(self, status, body):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                if self.path == "/health":
                    return self.reply(200, {"state": "ready", "version": version, "build": "b-" + version,
                                            "shiny": True})
                return self.reply(404, {"error": {"code": "not_found", "message": "there is no such path"}})

            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path == "/v1/jobs":
                    return self.reply(201, outer.envelope)
                return self.reply(404, {"error": {"code": "not_found", "message": "there is no such path"}})

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

            def get_request(self):
                connection, _ = super().get_request()
                return connection, ("local", 0)

        self.server = Server(str(home / "ponderd.sock"), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


# T22, OmniFocus-MCP#99, auto-mobile#2441, khive#714: programs of two versions misunderstood each other for days.
def two_versions_say_so():
    with tempfile.TemporaryDirectory(prefix="ponder-e2e-") as top:
        home = pathlib.Path(top)
        other = OtherVersion(home, "9.9.9")
        both = json.loads(cli(home, "version", "--json").stdout)
        check(both["daemon"]["version"] == "9.9.9" and both["client"]["version"] != "9.9.9", f"version names both: {both}")
        doctor = json.loads(cli(home, "doctor", "--json").stdout)
        row = next(c for c in doctor["checks"] if c["name"] == "daemon")
        check(row["state"] == "note" and "9.9.9" in row["message"] and "start" in row["hint"], f"doctor: {row}")
        done = cli(home, "submit", "x")
        check((done.returncode, done.stdout.strip()) == (0, "0" * 26), f"what both know works: {done}")
        done = cli(home, "unload")
        check(done.returncode != 0 and "another version" in done.stderr and "restart" in done.stderr,
              f"what one does not know is an error with the way out: {done}")
        mcp = Mcp(home)
        health = mcp.tool("health")
        check(structured(health)["versions"]["ponderd"] == "9.9.9", f"health names both: {text_of(health)}")
        check(structured(mcp.tool("submit", task="x")).get("job_id") == "0" * 26, "an agent is served")
        failed = mcp.tool("status")
        check(failed["isError"] and "another version" in text_of(failed), f"or told why not: {text_of(failed)}")
        mcp.close()
        other.server.shutdown()
        other.server.server_close()


def main():
    for part in (the_wait_command_is_the_notification, a_conversation_outlives_every_process,
                 a_thought_that_never_ends_is_told_with_both_ways_on, a_large_answer_comes_whole,
                 paths_are_taken_as_they_are, a_call_given_up_while_its_job_waits, a_model_at_work_is_not_taken_away,
                 a_model_that_comes_back_is_used, two_versions_say_so):
        part()


main()
finish("reports_test")
