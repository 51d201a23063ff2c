"""Memory of all that runs together, on the real programs with the bundled model: what does not fit
beside the others stays queued with waiting_for memory and then runs, a batch job makes room for an
ask and has in the end the text it has alone, and nothing fails.
context_memory_test.py BIN_DIR [--planted unbounded]

--planted unbounded sets no bound (context_mib = 0): then nothing waits, which must be found out.
"""
import json
import subprocess
import time

from harness import BIN, PLANTED, ROOT, Daemon, check, finish, wait_until

MODEL = ROOT / "models/pebble/pebble-q8_0.gguf"
CTX = 4096
MIB = 1 << 20
ASK_S = 2
LONG = {"effort": "xhigh", "seed": 20240611, "temperature": 1.0, "top_p": 1.0, "top_k": 0,
        "max_reasoning_tokens": 3000, "max_answer_tokens": 300}
QUESTION = "How many Collatz steps from 27 to 1?"  # 111 of them, each a line of thinking


def contexts(count):
    """context_mib for so many whole windows."""
    info = subprocess.run([BIN / "ponder-engine", "info", MODEL, "--ctx", str(CTX), "--json"],
                          capture_output=True, text=True, check=True)
    memory = json.loads(info.stdout)["memory"]
    return max(1, int(count * (memory["kv"] + 2 * memory["state"]) / MIB))


def daemon(mib):
    d = Daemon("--model", MODEL, "--ctx", str(CTX))
    (d.home / "ponder.toml").write_text(
        f"context_mib = {0 if PLANTED else mib}\nmax_running_batch = 2\nmax_running_interactive = 2\n")
    return d


def states(d, job_id):
    """Those that a job was in, in order."""
    stream = d.call("GET", f"/v1/jobs/{job_id}/events?after=0").body.decode()
    events = [event.split("\n") for event in stream.split("\n\n")]
    return [json.loads(line[6:])["state"] for event in events if "event: state" in event
            for line in event if line.startswith("data: ")]


def two_jobs_and_room_for_one(d):
    first = d.submit(QUESTION, **LONG).json["job_id"]
    wait_until(lambda: d.job(first)["state"] == "running", 20, "the first job runs")
    second = d.submit("Which is larger, 9 or 11?", **LONG).json["job_id"]
    job = d.job(second)
    check((job["state"], job["waiting_for"]) == ("queued", "memory"),
          f"the second waits for memory, got {job['state']} {job['waiting_for']}")
    check("MiB" in (job["note"] or ""), f"its note has the numbers: {job['note']}")
    wanted = d.wait_terminal(first)
    ended = d.wait_terminal(second)
    check(ended["state"] == "completed" and ended["attempt"] == 1, f"the second runs then: {ended['state']}")
    check(states(d, second) == ["queued", "running", "completed"],
          f"it was never started in vain: {states(d, second)}")
    return wanted, d.text(first, "reasoning"), d.text(first)


def turn(d):
    reply = d.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 12 + 30?"}]})
    check(reply.status == 200 and "42" in reply.json["choices"][0]["message"]["content"],
          f"a turn beside it is answered: {reply.body[:200]}")


def ask(d):
    job_id = d.submit("What is 12 + 30?", kind="ask", effort="none").json["job_id"]
    job = d.wait_terminal(job_id)
    check(job["state"] == "completed" and "42" in d.text(job_id), f"an ask beside it is answered: {job['state']}")


def beside_a_batch_job(d, answered, wanted, reasoning, answer):
    """What made room gets a minute to itself, so each of them meets a job of its own."""
    job_id = d.submit(QUESTION, force_new=True, **LONG).json["job_id"]
    wait_until(lambda: d.job(job_id)["reasoning_chars"] > 50, 20, "the batch job thinks")
    began = time.monotonic()
    answered(d)
    took = time.monotonic() - began
    check(took <= ASK_S, f"the {answered.__name__} beside it took {took:.2f} s, at most {ASK_S}")
    print(f"the {answered.__name__} beside a batch job: {took:.2f} s", flush=True)
    job = d.wait_terminal(job_id)
    check(job["state"] == wanted["state"] and job["attempt"] == 1, f"the batch job ends as alone: {job['state']}")
    check(d.text(job_id, "reasoning") == reasoning and d.text(job_id) == answer,
          "the batch job has the text that it has alone")
    check(states(d, job_id)[:4] == ["queued", "running", "queued", "running"],
          f"it made room and went on: {states(d, job_id)}")


def many_at_once(d):
    ids = [d.submit(f"What is {n} + {n * 7}?", kind="ask" if n % 2 else "batch", force_new=True).json["job_id"]
           for n in range(8)]
    for job_id in ids:
        job = d.wait_terminal(job_id)
        check(job["state"] == "completed", f"one of many: {job['state']} {job['reason']}")
    check(all(job["state"] != "failed" for job in d.all_jobs()), "nothing failed")


def main():
    with daemon(contexts(1.5)) as d:
        d.start()
        wanted = two_jobs_and_room_for_one(d)
        for answered in (turn, ask):
            beside_a_batch_job(d, answered, *wanted)
        many_at_once(d)
    with daemon(1) as d:  # less than any of them takes
        d.start()
        many_at_once(d)
    finish("context memory")


main()
