#!/usr/bin/env python3
"""Speculative decoding against plain decoding on the bundled questions, in one run: A B B A.

    speculation.py BIN_DIR [--questions N] [--threads T] [--effort medium] [--temperature 0]

Two daemons on the bundled model, one with speculation off. Prints tokens per second of decoding
(tokens over the time from the first to the last), the ratio, how many drafts were accepted, and
whether both gave the same texts. Judges only the texts.
"""
import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
from harness import ROOT, Daemon, check, finish, json  # noqa: E402


def daemon_with(speculation, arguments):
    config = pathlib.Path(tempfile.mkdtemp()) / "ponder.toml"
    config.write_text(f'speculation = "{speculation}"\nthreads = {arguments.threads}\n')
    return Daemon("--model", ROOT / "models/pebble" / arguments.model, "--ctx", "8192", "--config", config).start()


class Tally:
    def __init__(self):
        self.tokens, self.seconds, self.drafted, self.accepted, self.texts = 0, 0.0, 0, 0, []

    def ask(self, daemon, row, arguments, seed):
        body = {"messages": row["messages"], "kind": "ask", "effort": arguments.effort, "force_new": True,
                "temperature": arguments.temperature, "seed": seed}
        if row.get("tools"):
            body["tools"] = row["tools"]
        job = daemon.call("POST", "/v1/jobs", body).json
        job = daemon.wait_terminal(job["job_id"], 300)
        n = job["tokens"]["reasoning"] + job["tokens"]["answer"]
        if n > 1 and job["tokens_per_s"]:
            self.tokens += n - 1
            self.seconds += (n - 1) / job["tokens_per_s"]
        self.drafted += job["drafted"] or 0
        self.accepted += job["accepted"] or 0
        self.texts.append((daemon.text(job["job_id"], "reasoning"), daemon.text(job["job_id"], "partial")))

    def rate(self):
        return self.tokens / max(1e-9, self.seconds)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bin")
    p.add_argument("--questions", type=int, default=60)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--effort", default="medium")
    p.add_argument("--temperature", type=float, default=0)
    p.add_argument("--model", default="pebble-q8_0.gguf")
    a = p.parse_args()
    rows = [json.loads(line) for line in open(ROOT / "models/pebble/eval.jsonl")]
    rows = rows[:: max(1, len(rows) // a.questions)]
    with daemon_with("off", a) as plain, daemon_with("adaptive", a) as drafting:
        tallies = {"plain": Tally(), "drafting": Tally()}
        for i, row in enumerate(rows):
            order = ("plain", "drafting") if i % 2 else ("drafting", "plain")
            for who in order:
                tallies[who].ask(plain if who == "plain" else drafting, row, a, 1000 + i)
    x, y = tallies["drafting"], tallies["plain"]
    share = 100 * x.accepted / max(1, x.drafted)
    print(f"| {a.model} | {a.effort} | temperature {a.temperature} | {a.threads} | {y.rate():.0f} | {x.rate():.0f} | "
          f"{x.rate() / y.rate():.2f} | {share:.0f} % of {x.drafted} |")
    check(x.texts == y.texts, "speculation changed a text")
    finish("speculation")


main()
