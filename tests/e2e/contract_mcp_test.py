"""The MCP server's contract, from outside: both eras, the six tools and their bounds, what is an
error and what not, pages, files, the end of the process.

    contract_mcp_test.py BIN_DIR
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from harness import BIN, check, finish, free_port, wait_until

TOOLS = ["ask", "submit", "status", "result", "cancel", "health"]
ARGUMENTS = {
    "ask": {"question", "effort", "context", "files", "wait_s"},
    "submit": {"task", "context", "files", "system", "effort", "max_reasoning_tokens", "max_answer_tokens",
               "deadline_s", "on_limit", "schema", "label", "idempotency_key", "continue_from", "mode", "force_new",
               "pin"},
    "status": {"job_id", "job_ids", "wait_s", "all_workspaces"},
    "result": {"job_id", "part", "offset", "limit", "out_file"},
    "cancel": {"job_id"},
    "health": {"probe"},
}
LEGACY = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
          "io.modelcontextprotocol/clientInfo": {"name": "contract", "version": "1"}}
LONG = "[[stub tokens=4000 rate=20 text=slow]]"
UNKNOWN = "0" * 26
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="ponder-mcp-"))  # everything is made below it
ENVELOPE = set("""job_id state reason phase waiting_for label workspace created_at started_at ended_at queue_s run_s
    effort_requested effort effort_by tokens cache ttft_s prefill_tokens_per_s tokens_per_s drafted accepted answer
    reasoning_chars total_chars next_offset truncated forced_answer position eta_s energy_j model model_class device
    degraded build parent_id attempt pinned note error next""".split())


class Server:
    """A ponder-mcp whose every line on stdout must be one JSON-RPC message."""

    def __init__(self, home, cwd, version="2025-11-25", client="contract", extra=(), env=None):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PONDER_", "XDG_"))}
        self.process = subprocess.Popen([BIN / "ponder-mcp", "--home", home, *extra], cwd=cwd, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        env={**clean, **(env or {})})
        self.messages, self.changed, self.count = [], threading.Condition(), 0
        threading.Thread(target=self._read, daemon=True).start()
        self.modern = version == MODERN["io.modelcontextprotocol/protocolVersion"]
        self.hello = None
        if version and not self.modern:
            self.hello = self.request("initialize", {"protocolVersion": version, "capabilities": {},
                                                     "clientInfo": {"name": client, "version": "1"}})
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _read(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
                check(message.get("jsonrpc") == "2.0" if isinstance(message, dict) else isinstance(message, list),
                      f"only protocol on stdout: {line[:200]}")
            except ValueError:
                check(False, f"only protocol on stdout: {line[:200]}")
                continue
            with self.changed:
                self.messages.append(message)
                self.changed.notify_all()

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        self.raw(json.dumps(message).encode() + b"\n")

    def begin(self, method, params=None):
        self.count += 1
        params = dict(params or {})
        if self.modern:
            params["_meta"] = {**MODERN, **params.get("_meta", {})}
        self.send({"jsonrpc": "2.0", "id": self.count, "method": method, "params": params})
        return self.count

    def wait(self, condition, timeout=60):
        with self.changed:
            found = lambda: next((m for m in self.messages if isinstance(m, dict) and condition(m)), None)
            self.changed.wait_for(lambda: found() is not None, timeout)
            return found()

    def request(self, method, params=None, timeout=60):
        asked = self.begin(method, params)
        reply = self.wait(lambda m: m.get("id") == asked, timeout)
        check(reply is not None, f"{method} is answered")
        return reply or {}

    def error_code(self, method, params=None):
        return (self.request(method, params).get("error") or {}).get("code")

    def call(self, tool, **arguments):
        reply = self.request("tools/call", {"name": tool, "arguments": arguments})
        result = reply.get("result")
        if not check(result is not None, f"{tool} gives a result: {str(reply)[:300]}"):
            return {"content": [{"text": ""}], "structuredContent": {}, "isError": None}
        blocks = result["content"]
        # T33, anthropics/claude-code#86032: one half of an answer was invisible to its reader.
        check(len(blocks) == 1 and blocks[0]["type"] == "text", f"{tool} gives one text block: {str(blocks)[:200]}")
        if self.modern:
            check(result.get("resultType") == "complete", f"{tool} says resultType: {str(result)[:200]}")
        return result

    def good(self, tool, **arguments):
        """(structuredContent, text) of a success."""
        result = self.call(tool, **arguments)
        text, data = result["content"][0]["text"], result.get("structuredContent")
        check(result.get("isError") is False and data is not None, f"{tool} {arguments} succeeds: {text[:300]}")
        lines = text.split("\n")
        check(len(lines) >= 2 and lines[-2] == "---", f"{tool} ends with --- and a status line: {text[-300:]!r}")
        return data or {}, text

    def job(self, tool, **arguments):
        """A success about one job, whose text says what its envelope says."""
        data, text = self.good(tool, **arguments)
        check(ENVELOPE <= set(data), f"{tool} gives the whole envelope, without {ENVELOPE - set(data)}")
        last = text.split("\n")[-1]
        for word in (data.get("job_id"), data.get("state"), str(data.get("effort"))):
            check(word and word in last, f"{tool}'s status line names {word}: {last}")
        check(re.search(r"tokens .* [\d.]+ s", last), f"{tool}'s status line has tokens and seconds: {last}")
        if data.get("answer"):
            check(data["answer"] in text, f"{tool}'s text has the answer of its envelope")
        return data, text

    def bad(self, tool, *words, **arguments):
        """The text of a tool error, which must hold `words`."""
        result = self.call(tool, **arguments)
        text = result["content"][0]["text"]
        check(result.get("isError") is True, f"{tool} {arguments} is an error: {text[:300]}")
        check("structuredContent" not in result, f"{tool}: an error is text alone")
        check(len(text) <= 8000, f"{tool}: an error has at most 8,000 characters, not {len(text)}")
        for word in words:
            check(word in text, f"{tool} {str(arguments)[:100]}: the error says {word!r}: {text[:600]}")
        return text

    def end(self):
        """Closes stdin; the exit code."""
        self.process.stdin.close()
        return self.process.wait(10)


def stub_home(more=""):
    home = pathlib.Path(tempfile.mkdtemp(dir=ROOM))
    (home / "ponder.toml").write_text('engine = "stub"\nport = 0\n' + more)
    return home


def has_service():
    """Whether systemd would start a daemon again on this machine, as contract_http_test.py has it."""
    user = pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or pathlib.Path.home() / ".config", "systemd", "user")
    return any(list(pathlib.Path(top).glob("*.wants/ponder*.service")) for top in (
        "/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", user))


def end_home(home):
    subprocess.run([BIN / "ponder", "--home", home, "stop", "--now"], capture_output=True, timeout=60)
    shutil.rmtree(home, ignore_errors=True)


# T10, modelcontextprotocol/servers#4153: clients of two eras of the protocol.
def protocol(home, work):
    for version in LEGACY:
        server = Server(home, work, version)
        result = server.hello["result"]
        check(result["protocolVersion"] == version, f"{version} is agreed on")
        check(len(result["instructions"].encode()) <= 2048, "instructions have at most 2,048 bytes")
        check(result["serverInfo"]["name"] and "tools" in result["capabilities"], f"{version}: {result}")
        check(server.request("ping").get("result") == {}, "ping")
        check([t["name"] for t in server.request("tools/list")["result"]["tools"]] == TOOLS, f"{version}: tools")
        check(server.end() == 0, "exit 0 at the end of input")
    server = Server(home, work, "2099-01-01")
    check(server.hello["result"]["protocolVersion"] == LEGACY[0], "an unknown version is answered by the newest")
    for method in ("resources/list", "prompts/list", "nonsense"):
        check(server.error_code(method) == -32601, f"{method} is an unknown method")
    check(server.error_code("tools/call", {"name": "nonsense", "arguments": {}}) == -32602, "an unknown tool")
    check(server.error_code("tools/call", {"arguments": {}}) == -32602, "a call without a name")
    check(server.error_code("tools/call", {"name": "ask", "arguments": []}) == -32602, "arguments that are a list")
    server.raw(b"{not json}\n")
    check(server.wait(lambda m: (m.get("error") or {}).get("code") == -32700), "a parse error")
    server.raw(b'{"jsonrpc": "2.0", "id": 99, "method": 5}\n')
    check(server.wait(lambda m: m.get("id") == 99 and m["error"]["code"] == -32600), "an invalid request")
    server.raw(b'\n\r\n{"jsonrpc": "2.0", "method": "notifications/unknown"}\n{"jsonrpc":"2.0","id":98,"method":"ping"}\r\n')
    check(server.wait(lambda m: m.get("id") == 98), "blank lines, unknown notifications and CRLF are fine")
    server.end()

    server = Server(home, work, "2026-07-28")
    found = server.request("server/discover")["result"]
    check("2026-07-28" in found["supportedVersions"] and "tools" in found["capabilities"], f"discover: {found}")
    check(len(found["instructions"].encode()) <= 2048, "instructions have at most 2,048 bytes")
    tools = server.request("tools/list")["result"]["tools"]
    check([t["name"] for t in tools] == TOOLS, "2026-07-28: tools")
    check(server.error_code("initialize", {"protocolVersion": "2025-11-25"}) == -32601, "no initialize there")
    check(server.error_code("tools/call", {"name": "x", "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2020-01-01"}}) == -32022, "an unsupported version")
    data, _ = server.job("ask", question="[[stub tokens=2 text=modern]]")
    check(data["answer"] == "modern modern", "ask in the stateless era")
    server.end()


# T34, RedHatInsights/insights-mcp#340: over-long descriptions were cut.
def tool_list(home, work):
    server = Server(home, work)
    reply = server.request("tools/list")
    check(len(json.dumps(reply, separators=(",", ":")).encode()) < 12 * 1024, "tools/list has less than 12 KB")
    check("demo" in server.hello["result"]["instructions"], "the instructions tell of the demo model")
    for tool in reply["result"]["tools"]:
        name, schema = tool["name"], tool["inputSchema"]
        check(len(tool["description"].encode()) <= 2048, f"{name}'s description has at most 2,048 bytes")
        check(set(schema["properties"]) == ARGUMENTS[name], f"{name}'s arguments: {set(schema['properties'])}")
        for mode in ("resume", "answer_now"):
            check((mode in json.dumps(tool)) is (name == "submit"), f"only submit offers {mode}: {name}")
        hints = tool["annotations"]
        check(hints["readOnlyHint"] is (name in ("ask", "status", "health")), f"{name}'s readOnlyHint")
        if name == "cancel":
            check(hints["destructiveHint"] is True, "cancel is destructive")
    server.end()


# T41, Factory-AI/factory#4, crush#3748: an unknown effort became none, and the one that was used was not told.
def arguments(home, work):
    server = Server(home, work)
    for tool, given, words in (
            ("ask", {}, ["question"]), ("ask", {"question": ""}, ["question"]), ("ask", {"question": 5}, ["question"]),
            ("ask", {"question": "x", "wait_s": -1}, ["wait_s"]), ("ask", {"question": "x", "wait_s": "9"}, ["wait_s"]),
            ("ask", {"question": "x", "effort": "enormous"}, ["none", "low", "medium", "xhigh"]),
            ("ask", {"question": "x", "effort": -5}, ["effort"]), ("ask", {"question": "x", "more": 1}, ["more"]),
            ("submit", {"task": "x", "max_answer_tokens": 0}, ["max_answer_tokens"]),
            ("submit", {"task": "x", "max_reasoning_tokens": -1}, ["max_reasoning_tokens"]),
            ("submit", {"task": "x", "deadline_s": 0}, ["deadline_s"]),
            ("submit", {"task": "x", "schema": "{}"}, ["schema"]), ("submit", {"task": "x", "pin": "yes"}, ["pin"]),
            ("submit", {}, ["task"]), ("submit", {"task": "x", "on_limit": "wait"}, ["on_limit", "stop", "answer"]),
            ("submit", {"task": "x", "mode": "go_on"}, ["follow_up", "resume", "answer_now"]),
            ("submit", {"mode": "resume"}, ["continue_from"]),
            ("submit", {"mode": "resume", "continue_from": UNKNOWN}, [UNKNOWN]),
            ("submit", {"mode": "answer_now", "continue_from": UNKNOWN}, [UNKNOWN]),
            ("submit", {"task": "x", "continue_from": UNKNOWN}, [UNKNOWN]),
            ("submit", {"task": "x", "max_reasoning_tokens": 30000, "max_answer_tokens": 30000}, ["32768", "60000"]),
            ("status", {"wait_s": -0.5}, ["wait_s"]), ("status", {"job_id": "short"}, ["short", "status"]),
            ("status", {"job_id": UNKNOWN}, [UNKNOWN]), ("status", {"job_ids": []}, ["job_ids"]),
            ("status", {"job_ids": [UNKNOWN]}, [UNKNOWN]), ("result", {}, ["job_id"]),
            ("result", {"job_id": UNKNOWN}, [UNKNOWN]), ("result", {"job_id": UNKNOWN, "part": "all"}, ["partial"]),
            ("result", {"job_id": UNKNOWN, "offset": -1}, ["offset"]),
            ("result", {"job_id": UNKNOWN, "limit": 0}, ["limit"]), ("cancel", {"job_id": UNKNOWN}, [UNKNOWN]),
            ("health", {"probe": 1}, ["probe"])):
        server.bad(tool, *words, **given)
    server.bad("ask", question="x", more="y" * 50000)
    server.bad("submit", task="x", effort="z" * 50000)
    check(server.job("ask", question="[[stub tokens=1]]", context=None, files=None, effort=None)[0]["effort"] == "medium",
          "null is as good as absent")
    for word, used in (("high", "medium"), ("max", "xhigh"), ("minimal", "low"), ("none", "none"), ("low", "low")):
        data = server.job("ask", question=f"[[stub tokens=1]] {word}", effort=word)[0]
        check(data["effort"] == used, f"effort {word}: {data['effort']}")
    data = server.job("submit", task="[[stub tokens=1]] all", context="c", system="s", effort="low",
                      max_reasoning_tokens=11, max_answer_tokens=22, deadline_s=33, on_limit="stop",
                      schema={"type": "object"}, label="lab", idempotency_key="key", pin=True)[0]
    check((data["effort"], data["label"], data["pinned"], data["tokens"]["reserved"]) == ("low", "lab", True, 33),
          f"submit's arguments arrive: {data}")
    server.bad("submit", "idempotency_key", task="another", idempotency_key="key")
    done = server.job("ask", question="[[stub tokens=1]] first turn")[0]["job_id"]
    child = server.job("submit", task="[[stub tokens=1]] second", continue_from=done, mode="follow_up")[0]
    check(child["parent_id"] == done, f"a continuation names its parent: {child}")
    server.bad("submit", "follow_up", continue_from=done, mode="resume")

    def ended(job_id):
        end = time.monotonic() + 30
        while True:
            job = server.job("status", job_id=job_id, wait_s=5)[0]
            if job["state"] not in ("queued", "running") or time.monotonic() > end:
                return job

    cut = server.job("submit", task="[[stub think=60 tokens=9]] cut", max_reasoning_tokens=8)[0]["job_id"]
    check(ended(cut)["reason"] == "reasoning_exhausted", "a job to go on from")
    for mode, forced in (("resume", False), ("answer_now", True)):
        child = ended(server.job("submit", continue_from=cut, mode=mode)[0]["job_id"])
        check((child["state"], child["parent_id"], bool(child["forced_answer"])) == ("completed", cut, forced),
              f"{mode} goes on from a cut job: {child}")
    data = server.job("submit", task="[[stub think=60 tokens=9]] limit", max_reasoning_tokens=8, on_limit="answer")[0]
    check(ended(data["job_id"])["forced_answer"] is True, "on_limit answer answers")
    server.end()


def asking(home, work):
    server = Server(home, work)
    data, text = server.job("ask", question="[[stub tokens=3 text=\U0001f600x]]")
    check(data["state"] == "completed" and data["answer"].count("\U0001f600") == 3, f"an answer: {text}")
    check(data["total_chars"] == len(data["answer"]) and data["truncated"] is False, f"code points: {data}")
    began = time.monotonic()
    data, text = server.job("ask", question=LONG, wait_s=0.5)
    check(0.2 < time.monotonic() - began < 5, "ask returns at wait_s")
    check(data["state"] in ("running", "queued") and data["job_id"] in text, f"a running job: {text}")
    check(data["next"]["mcp"]["tool"] == "status" and "status" in text, f"the next call: {text}")
    server.job("cancel", job_id=data["job_id"])
    server.bad("ask", "stream_lost", "partial", question="[[stub tokens=9 fault=exit0 after=4]]", effort="none")
    server.bad("ask", "failed", question="[[stub tokens=9 fault=out_of_memory after=4]]", effort="none")
    asked = server.begin("tools/call", {"name": "ask", "arguments": {"question": "[[stub tokens=1]]", "wait_s": 1000}})
    reply = server.wait(lambda m: m.get("id") == asked)["result"]
    check("45" in (reply["structuredContent"]["note"] or "") and "note" in reply["content"][0]["text"],
          f"wait_s is lowered and named: {reply['structuredContent']['note']}")
    server.end()


def jobs(home, work):
    server = Server(home, work)
    data, text = server.job("submit", task=LONG, label="night work")
    job = data["job_id"]
    check(data["tokens"]["prompt"] > 0 and str(data["tokens"]["prompt"]) in text, f"exact prompt tokens: {text}")
    check(f"wait {job}" in text and data["next"]["shell"] in text, f"the wait command: {text}")
    if not has_service():
        check("logout or a reboot" in (data["note"] or "") and data["note"] in text, f"nothing would start the daemon again: {data['note']}")
    check("warning" not in data, "the envelope has the fields of every other")
    shell = subprocess.run(data["next"]["shell"].replace(" wait ", " wait --wait-s 0.1 "), shell=True, cwd="/",
                           capture_output=True)
    check(shell.returncode == 124, f"the wait command runs as it stands: {data['next']['shell']} {shell}")
    # T16, ai-dev-kit#65, tapir-archicad-MCP#23: a retry after a time-out made a second job.
    twin, text = server.job("submit", task=LONG, label="night work")
    check(twin["job_id"] == job and twin["note"] and twin["note"] in text, f"a twin with a note: {twin['note']}")
    new = server.job("submit", task=LONG, force_new=True)[0]["job_id"]
    check(new != job, "force_new")
    wait_until(lambda: server.job("status", job_id=job)[0]["state"] == "running", 20, "it runs")
    data, text = server.job("status", job_id=job)
    check(data["answer"] is None, "status has no texts")
    began = time.monotonic()
    data, _ = server.job("status", job_id=new, wait_s=0.7)
    check(0.5 < time.monotonic() - began < 8, "status waits")
    listed, text = server.good("status")
    check({job, new} <= {j["job_id"] for j in listed["jobs"]} and job in text, f"this workspace's jobs: {text}")
    check(all(j["answer"] is None for j in listed["jobs"]), "a list has no texts")
    check([j["job_id"] for j in listed["jobs"]] == sorted((j["job_id"] for j in listed["jobs"]), reverse=True),
          "newest first")
    both, text = server.good("status", job_ids=[new, job])
    check([j["job_id"] for j in both["jobs"]] == [new, job] and new in text and job in text, "several, as asked")
    one, _ = server.good("status", job_ids=[job])
    check(set(one) >= {"jobs"} and len(one["jobs"]) == 1, f"job_ids of one: {str(one)[:200]}")
    elsewhere = Server(home, tempfile.mkdtemp(dir=ROOM))
    check(elsewhere.good("status")[0]["jobs"] == [], "another workspace has none")
    check(job in {j["job_id"] for j in elsewhere.good("status", all_workspaces=True)[0]["jobs"]}, "all_workspaces")
    elsewhere.end()
    server.bad("result", job, "Partial", "status", job_id=job)
    check(server.job("result", job_id=job, part="partial")[0]["part"] == "partial", "a running job's partial")
    wait_until(lambda: server.job("status", job_id=job)[0]["phase"] == "answering", 20, "its thinking ends")
    wakes = server.begin("tools/call", {"name": "status", "arguments": {"job_id": job, "wait_s": 40}})
    time.sleep(0.1)
    ended, text = server.job("cancel", job_id=job)
    check(ended["state"] == "cancelled", f"cancel gives the final envelope: {text}")
    woken = server.wait(lambda m: m.get("id") == wakes, 10)
    check(woken and woken["result"]["structuredContent"]["state"] == "cancelled", "status wakes at the end")
    server.job("cancel", job_id=job)
    late, text = server.job("status", job_id=job, wait_s=500)
    check("50" in (late["note"] or "") and late["note"] in text, f"wait_s is lowered and named: {late['note']}")
    server.bad("result", job, "cancelled", "part", job_id=job)
    server.job("cancel", job_id=new)
    # T26, openclaw#108989, axonhub#2185: an output that broke off passed for a success.
    cut = server.job("submit", task="[[stub tokens=9 text=cut fault=exit0 after=4]]", effort="none")[0]["job_id"]
    wait_until(lambda: server.job("status", job_id=cut, wait_s=5)[0]["state"] == "incomplete", 20, "it is cut")
    text = server.bad("result", cut, "stream_lost", "result", '"part":"partial"', job_id=cut)
    partial, shown = server.job("result", job_id=cut, part="partial")
    check(f"{partial['total_chars']} characters" in text, f"the partial's size, {partial['total_chars']}: {text}")
    check(partial["text"].startswith("cut") and partial["text"] in shown and "not a whole answer" in shown,
          f"the partial says that it is none: {shown}")
    failed = server.job("submit", task="[[stub tokens=9 fault=out_of_memory after=4]]")[0]["job_id"]
    wait_until(lambda: server.job("status", job_id=failed, wait_s=5)[0]["state"] == "failed", 20, "it fails")
    server.bad("result", failed, "out_of_memory", job_id=failed)
    server.job("cancel", job_id=failed)
    server.end()


# T31, danielmiessler/Fabric#2203: emoji and accents, torn by no page.
def pages(home, work):
    server, claude = Server(home, work), Server(home, work, client="claude-code")
    data, text = server.job("ask", question="[[stub tokens=9000 text=\U0001f600é]]")
    job, total = data["job_id"], data["total_chars"]
    check(len(data["answer"]) == 3000 and data["truncated"] is True and data["next_offset"] == 3000, "a page of 3,000")
    count = -(-total // 3000)
    check(f"page 1 of {count}" in text.split("\n")[0], f"the first line: {text[:100]}")
    whole, offset, number = "", 0, 1
    while offset is not None:
        data, text = server.job("result", job_id=job, offset=offset, limit=20000)
        check(f"page {number} of {-(-total // 20000)}" in text.split("\n")[0], f"page {number}: {text[:100]}")
        whole, offset, number = whole + data["answer"], data["next_offset"], number + 1
        check(data["truncated"] is (offset is not None) and data["total_chars"] == total, f"a page: {number}")
    check(len(whole) == total and whole.startswith("\U0001f600é \U0001f600é"), "the pages are the whole")
    check(len(server.job("result", job_id=job, limit=20000)[0]["answer"]) == 20000, "limit 20,000 is honoured")
    more, text = server.job("result", job_id=job, limit=50000)
    check(len(more["answer"]) == 20000 and "20000" in (more["note"] or "") and more["note"] in text, "more is lowered")
    check(server.job("result", job_id=job, offset=1, limit=1)[0]["answer"] == "é", "offsets count code points")
    check(server.job("result", job_id=job, offset=total)[0]["answer"] == "", "an offset at the end")
    check(len(claude.job("result", job_id=job)[0]["answer"]) == 12000, "12,000 for Claude Code")
    small, text = server.job("ask", question="[[stub tokens=2 text=small]]")
    check("page" not in text and small["next_offset"] is None, "a small answer is no page")

    (work / "sub").mkdir()
    data, text = server.job("result", job_id=job, out_file="sub/out.txt")
    check((work / "sub" / "out.txt").read_text() == whole and str(work / "sub" / "out.txt") in text, "out_file")
    server.job("result", job_id=job, out_file="sub/out.txt")
    (work / "precious.txt").write_text("mine")
    server.bad("result", "precious.txt", job_id=job, out_file="precious.txt")
    check((work / "precious.txt").read_text() == "mine", "a file is not overwritten")
    (work / "out-link").symlink_to(work.parent / "escaped.txt")
    for path in ("../escaped.txt", "/tmp/escaped.txt", "out-link", "sub", "no/such/dir.txt"):
        server.bad("result", path, job_id=job, out_file=path)
    check(not (work.parent / "escaped.txt").exists(), "nothing is written outside")
    server.end()
    claude.end()


# T39, pal-mcp-server#293: `files` read anything that the user may read.
def files(home, work):
    server = Server(home, work)
    place = work / "files"
    place.mkdir()
    (place / "good.txt").write_text("text é")
    (place / "latin1.txt").write_bytes(b"caf\xe9")
    (place / "large.txt").write_bytes(b"x" * ((1 << 20) + 1))
    (place / "link.txt").symlink_to(place / "good.txt")
    (place / "passwd").symlink_to("/etc/passwd")
    (place / "way").symlink_to("/etc")
    os.mkfifo(place / "pipe")
    plain = server.job("submit", task="[[stub tokens=1]] f")[0]["tokens"]["prompt"]
    relative = server.job("submit", task="[[stub tokens=1]] f", files=["files/good.txt"])[0]["tokens"]["prompt"]
    absolute = server.job("submit", task="[[stub tokens=1]] f", files=[str(place / "good.txt")])[0]["tokens"]["prompt"]
    check(plain < relative and plain < absolute, "files are sent along")
    server.job("ask", question="[[stub tokens=1]]", files=["files/../files/good.txt"])
    for path in ("files/latin1.txt", "files/large.txt", "files/passwd", "files/way/passwd", "files/pipe", "files",
                 "../x", "/etc/passwd", "files/missing", "", "files/\0x", "/dev/zero", "files/../../../etc/passwd"):
        began = time.monotonic()
        text = server.bad("ask", "file", question="x", files=[path])
        check(time.monotonic() - began < 5 and "root:" not in text, f"{path!r} is refused at once")
    server.bad("ask", "files", question="x", files="files/good.txt")
    for i in range(9):
        (place / f"big{i}.txt").write_bytes(b"y" * (1 << 20))
    server.bad("submit", "8388608", task="x", files=[f"files/big{i}.txt" for i in range(9)])
    other = pathlib.Path(tempfile.mkdtemp(dir=ROOM))
    (other / "root.txt").write_text("of a root")
    rooted = Server(home, work, extra=["--root", str(other)])
    rooted.job("ask", question="[[stub tokens=1]] r", files=[str(other / "root.txt")])
    server.bad("ask", "--root", question="[[stub tokens=1]] r", files=[str(other / "root.txt")])
    rooted.end()
    server.end()


def waiting_and_cancelling(home, work):
    server = Server(home, work)
    job = server.job("submit", task=LONG, force_new=True)[0]["job_id"]
    wait_until(lambda: server.job("status", job_id=job)[0]["phase"] == "answering" or True, 10, "it runs")
    waits = server.begin("tools/call", {"name": "ask", "arguments": {"question": LONG + " cancelled"}})
    began = time.monotonic()
    server.request("ping")
    server.request("tools/list")
    server.good("health")
    check(time.monotonic() - began < 3, "a wait holds up nothing else")
    listed = wait_until(lambda: [j for j in server.good("status")[0]["jobs"] if j["effort"] == "medium"
                                 and j["state"] in ("running", "queued")], 10, "the ask is a job")
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waits}})
    server.request("ping")
    time.sleep(0.3)
    check(not any(m.get("id") == waits for m in server.messages), "a cancelled request is not answered")
    check(server.job("status", job_id=listed[0]["job_id"])[0]["state"] in ("running", "queued"), "its job goes on")
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 123456}})
    for each in (job, listed[0]["job_id"]):
        server.job("cancel", job_id=each)
    token = server.begin("tools/call", {"name": "ask", "arguments": {"question": LONG + " progress", "wait_s": 7},
                                        "_meta": {"progressToken": "p1"}})
    done = server.wait(lambda m: m.get("id") == token)
    told = [m for m in server.messages if m.get("method") == "notifications/progress"]
    check(told and all(m["params"]["progressToken"] == "p1" for m in told), f"progress is told: {told}")
    server.job("cancel", job_id=done["result"]["structuredContent"]["job_id"])
    server.end()


def ends(home, work):
    for number in (None, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        server = Server(home, work)
        waits = server.begin("tools/call", {"name": "ask", "arguments": {"question": LONG + f" {number}"}})
        other = Server(home, work)
        found = wait_until(lambda: [j for j in other.good("status")[0]["jobs"] if j["state"] in ("running", "queued")],
                           10, "the ask is a job")
        began = time.monotonic()
        if number is None:
            server.process.stdin.close()
        else:
            server.process.send_signal(number)
        code = server.process.wait(10)
        took = time.monotonic() - began
        # 100 ms are promised and held against by process_test.cc; here, beside a daemon that works, it must not
        # be the wait, of 45 s, that ends it.
        check(took < 5, f"{number}: gone at once: {took:.3f} s")
        check(code == 0, f"{number}: exit {code}")
        check(other.job("status", job_id=found[0]["job_id"])[0]["state"] in ("running", "queued"), "the job goes on")
        check(waits, "a wait was under way")
        other.job("cancel", job_id=found[0]["job_id"])
        other.end()


def health(work):
    home = stub_home()
    server = Server(home, work)
    data, text = server.good("health")
    check(data["state"] == "down" and "start" in text, f"down: {text}")
    check(not (home / "ponderd.sock").exists(), "health starts nothing")
    data, _ = server.good("health", probe=True)
    check(data["state"] == "down" and not (home / "ponderd.sock").exists(), "nor does a probe")
    check(server.job("ask", question="[[stub tokens=1]]")[0]["state"] == "completed", "ask starts the daemon")
    data, text = server.good("health", probe=True)
    check(data["state"] in ("ready", "busy") and data["probe"]["ok"] is True and "robe" in text, f"a probe: {text}")
    check(isinstance(data["degraded"], list) and data["model"]["id"] == "stub" and data["model"]["n_ctx"] > 0
          and set(data["queue"]) >= {"running", "ask", "batch", "limit"} and data["versions"]["ponderd"],
          f"all of it: {data}")
    for word in ("stub", str(data["model"]["n_ctx"]), data["versions"]["ponderd"], data["state"]):
        check(word in text, f"the text says {word}: {text}")
    subprocess.run([BIN / "ponder", "--home", home, "stop"], capture_output=True, timeout=60)
    words = re.compile(r"stopped by its owner at \d{4}-\d\d-\d\dT[\d:.]+Z; `ponder start`")
    for tool, given in (("ask", {"question": "x"}), ("submit", {"task": "x"}), ("status", {}),
                        ("result", {"job_id": UNKNOWN}), ("cancel", {"job_id": UNKNOWN})):
        text = server.bad(tool, **given)
        check(words.search(text), f"{tool} says who stopped it: {text}")
    data, text = server.good("health")
    check(data["state"] == "down" and words.search(text), f"health says who stopped it: {text}")
    check(not (home / "ponderd.sock").exists(), "nothing started it")
    server.end()
    end_home(home)

    home = stub_home()
    server = Server(home, work, extra=["--no-start"])
    server.bad("ask", "ponder --home", "start", question="x")
    check(not (home / "ponderd.lock").exists(), "--no-start")
    server.end()
    end_home(home)

    home = stub_home("no_such_setting = 1\n")
    server = Server(home, work)
    server.bad("ask", "no_such_setting", question="x")
    server.end()
    end_home(home)

    home = stub_home("max_queued = 2\n")
    server = Server(home, work)
    for i in range(12):
        result = server.call("submit", task=LONG + f" {i}")
        if result.get("isError"):
            break
    check(result.get("isError") and "full" in result["content"][0]["text"], f"a full queue: {result}")
    shell = subprocess.run([BIN / "ponder", "--home", home, "submit", LONG + " more"], capture_output=True)
    check(shell.returncode == 75 and shell.stdout == b"", f"on the command line: {shell}")
    server.end()
    end_home(home)


def over_tcp(work):
    home, elsewhere = stub_home(), tempfile.mkdtemp(dir=ROOM)
    port = free_port()
    daemon = subprocess.Popen([BIN / "ponderd", "--home", home, "--port", str(port)], stderr=subprocess.DEVNULL)
    wait_until(lambda: (home / "ponderd.sock").exists(), 20, "the daemon listens")
    there = {"PONDER_URL": f"http://127.0.0.1:{port}"}
    server = Server(elsewhere, work, env={**there, "PONDER_KEY_FILE": str(home / "api-key")})
    (work / "here.txt").write_text("a file of this machine")
    data, _ = server.job("ask", question="[[stub tokens=2 text=far]]", files=["here.txt"])
    check(data["answer"] == "far far", f"a daemon elsewhere: {data}")
    data, text = server.good("health")
    check(data["state"] in ("ready", "busy"), f"its health: {text}")
    server.end()
    server = Server(elsewhere, work, env=there)
    server.bad("ask", "PONDER_KEY_FILE", question="x")
    server.end()
    daemon.terminate()
    check(daemon.wait(20) == 0, "the daemon ends")
    for place in (home, elsewhere):
        shutil.rmtree(place, ignore_errors=True)


def main():
    home, work = stub_home(), pathlib.Path(tempfile.mkdtemp(dir=ROOM)) / "project"
    work.mkdir()
    for part in (protocol, tool_list, arguments, asking, jobs, pages, files, waiting_and_cancelling, ends):
        part(home, work)
    end_home(home)
    health(work)
    over_tcp(work)
    shutil.rmtree(work.parent, ignore_errors=True)


try:
    main()
finally:
    for settings in ROOM.glob("*/ponder.toml"):  # a test that broke off leaves its daemon
        subprocess.run([BIN / "ponder", "--home", settings.parent, "stop", "--now"], capture_output=True, timeout=60)
    shutil.rmtree(ROOM, ignore_errors=True)
finish("contract_mcp_test")
