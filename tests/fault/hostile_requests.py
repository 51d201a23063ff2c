"""Tables of hostile requests, as bytes: (kind, method, target, body, may_be_served).

A kind is a shape and a place. `may_be_served` where the request is legal however odd it looks;
everything else has to be a 4xx.
"""
import itertools
import json

CHAT, JOBS = "/v1/chat/completions", "/v1/jobs"
BIG = 5_000_000
DEPTHS = (10, 64, 65, 100, 1_000, 10_000, 100_000, 1_000_000)
LIMIT = 64  # the deepest JSON that is read

# Literals, since several of them are no JSON numbers at all, and Python would not write the rest so.
NUMBERS = ["-1", "-0", "0", "2147483647", "2147483648", "4294967296", "9007199254740993", "9223372036854775807",
           "9223372036854775808", "18446744073709551615", "18446744073709551616", "-2147483649", "-9223372036854775808",
           "-9223372036854775809", "1e308", "-1e308", "1e309", "1e400", "-1e400", "1e-400", "0.5", "-0.5", "NaN", "Infinity", "-Infinity", "nan",
           "+1", "01", "1.", ".5", "0x10", "1_000", "1e", "1e99999999999999999999", "1" * 10_000, "0." + "1" * 10_000,
           '"5"', '"NaN"', "[]", "[1]", "{}", "true"]
NOT_JSON = {"NaN", "Infinity", "-Infinity", "nan", "+1", "01", "1.", ".5", "0x10", "1_000", "1e", "1e309", "1e400", "-1e400",
            "1e99999999999999999999", "1" * 10_000}
CHAT_NUMBERS = ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens", "max_reasoning_tokens",
                "max_answer_tokens", "n", "presence_penalty", "frequency_penalty", "repetition_penalty", "top_logprobs", "logprobs",
                "reasoning_effort", "stream", "logit_bias", "stop"]
JOB_NUMBERS = ["deadline_s", "max_reasoning_tokens", "max_answer_tokens", "effort", "seed", "temperature", "force_new", "pin"]
QUERY_NUMBERS = ["wait_s", "limit", "offset"]


def chat(**more):
    return {"messages": [{"role": "user", "content": "2+2="}], "max_tokens": 1, "reasoning_effort": "none", **more}


def job(**more):
    return {"task": "2+2=", "effort": "none", "max_answer_tokens": 1, "force_new": True, **more}


def dump(value):
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def with_raw(body, key, literal):
    """`body` with `key` set to a literal that need not be JSON."""
    body = {k: v for k, v in body.items() if k != key}
    return dump(body)[:-1] + b", " + json.dumps(key).encode() + b": " + literal + b"}"


def numbers():
    for field, literal in itertools.product(CHAT_NUMBERS, NUMBERS):
        yield f"number {literal[:24]} as chat {field}", "POST", CHAT, with_raw(chat(), field, literal.encode()), literal not in NOT_JSON
    for field, literal in itertools.product(JOB_NUMBERS, NUMBERS):
        yield f"number {literal[:24]} as job {field}", "POST", JOBS, with_raw(job(), field, literal.encode()), literal not in NOT_JSON
    for literal in NUMBERS:
        yield (f"number {literal[:24]} as a bias", "POST", CHAT, with_raw(chat(), "logit_bias", b'{"5": ' + literal.encode() + b"}"),
               literal not in NOT_JSON)
    for field, literal in itertools.product(QUERY_NUMBERS, NUMBERS):
        if len(literal) < 100 and not set(literal) & set('"[]{}'):
            yield f"number {literal} as ?{field}", "GET", f"/v1/jobs/{{kept}}?{field}={literal}".replace("+", "%2b"), None, True


def nested(depth, kind):
    """`depth` levels in all: arrays, objects, or both in turn."""
    if kind == "arrays":
        return b"[" * depth + b"]" * depth
    if kind == "objects":
        return b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)
    return b'[{"a":' * (depth // 2) + b"1" + b"}]" * (depth // 2)


def depths():
    """ggml-org/llama.cpp#27434, nlohmann/json#5387: 3,000 nested arrays in tools crash a copy or a print."""
    tool = b'[{"type": "function", "function": {"name": "f", "parameters": %s}}]'
    text = lambda raw: json.dumps(raw.decode()).encode()
    places = [
        ("the whole body", JOBS, lambda raw: raw, 0), ("an unknown field", JOBS, lambda raw: with_raw(job(), "metadata", raw), 1),
        ("the task", JOBS, lambda raw: with_raw(job(), "task", raw), 1), ("a job's schema", JOBS, lambda raw: with_raw(job(), "schema", raw), 1),
        ("files", JOBS, lambda raw: with_raw(job(), "files", raw), 1), ("messages", CHAT, lambda raw: with_raw(chat(), "messages", raw), 1),
        ("content", CHAT, lambda raw: with_raw(chat(), "messages", b'[{"role": "user", "content": %s}]' % raw), 3),
        ("tools", CHAT, lambda raw: with_raw(chat(), "tools", raw), 1),
        ("a tool's parameters", CHAT, lambda raw: with_raw(chat(), "tools", tool % raw), 4),
        ("template arguments", CHAT, lambda raw: with_raw(chat(), "chat_template_kwargs", b'{"x": %s}' % raw), 2),
        ("response_format", CHAT, lambda raw: with_raw(chat(), "response_format",
                                                       b'{"type": "json_schema", "json_schema": {"schema": {"enum": [%s]}}}' % raw), 5),
        ("the arguments of a call", CHAT, lambda raw: with_raw(chat(), "messages", b'[{"role": "assistant", "tool_calls": [{"function": '
                                                               b'{"name": "f", "arguments": %s}}]}, {"role": "user", "content": "x"}]' % raw), 6),
        ("arguments in a string", CHAT, lambda raw: with_raw(chat(), "messages", b'[{"role": "assistant", "tool_calls": [{"function": '
                                                             b'{"name": "f", "arguments": %s}}]}, {"role": "user", "content": "x"}]' % text(raw)), None),
        ("logit_bias", CHAT, lambda raw: with_raw(chat(), "logit_bias", raw), 1), ("stop", CHAT, lambda raw: with_raw(chat(), "stop", raw), 1)]
    for (where, target, place, above), depth, kind in itertools.product(places, DEPTHS, ("arrays", "objects", "both")):
        legal = depth + (above or 0) <= LIMIT and where not in ("the whole body",)
        if where == "arguments in a string":
            legal = depth <= LIMIT
        yield f"{depth} nested {kind} in {where}", "POST", target, place(nested(depth, kind)), legal


def lists():
    user = {"role": "user", "content": "x"}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    call = {"function": {"name": "f", "arguments": "{}"}}
    for n in (4097, 100_000):
        yield f"{n} messages", "POST", CHAT, dump(chat(messages=[user] * n)), False
        yield f"{n} messages of a job", "POST", JOBS, dump({"messages": [user] * n}), False
        yield f"{n} tools", "POST", CHAT, dump(chat(tools=[tool] * n)), False
        yield f"{n} calls", "POST", CHAT, dump(chat(messages=[{"role": "assistant", "tool_calls": [call] * n}, user])), False
        yield f"{n} stops", "POST", CHAT, dump(chat(stop=["a"] * n)), False
        yield f"{n} files", "POST", JOBS, dump(job(files=[{"name": "a", "text": "b"}] * n)), False
        yield f"{n} biases", "POST", CHAT, dump(chat(logit_bias={str(i): 1 for i in range(n)})), False
        yield f"{n} unknown fields", "POST", CHAT, dump(chat(**{f"x{i}": 1 for i in range(n)})), True
        yield f"{n} parts", "POST", CHAT, dump(chat(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * n}])), True
        yield f"{n} template arguments", "POST", CHAT, dump(chat(chat_template_kwargs={f"x{i}": 1 for i in range(n)})), False
        yield f"{n} modalities", "POST", CHAT, dump(chat(modalities=["text"] * n)), True
        yield f"{n} numbers as prompt", "POST", "/v1/tokenize", dump({"text": [1] * n}), False
        yield f"{n} times one key", "POST", JOBS, b'{"task": "x"' + b', "a": 1' * n + b"}", False
        yield f"{n} empty objects", "POST", CHAT, dump(chat(messages=[{}] * n)), False
        yield f"{n} query fields", "GET", "/v1/jobs?" + "a=1&" * min(n, 4000), None, True
    yield "513 tools", "POST", CHAT, dump(chat(tools=[tool] * 513)), False
    yield "17 stops", "POST", CHAT, dump(chat(stop=["a"] * 17)), False
    yield "1025 biases", "POST", CHAT, dump(chat(logit_bias={str(i): 1 for i in range(1025)})), False
    yield "65 files", "POST", JOBS, dump(job(files=[{"name": "a", "text": "b"}] * 65)), False


def schemas():
    """ggml-org/llama.cpp#26600: 60,000 nested groups in a grammar are a SIGSEGV."""
    loop = {"$ref": "#"}
    doubling = {"$ref": "#/d/0", "d": [{"allOf": [{"$ref": f"#/d/{i + 1}"}] * 2} for i in range(40)] + [{"type": "string"}]}
    chain = {"$ref": "#/d/0", "d": [{"$ref": f"#/d/{i + 1}"} for i in range(5000)] + [{"type": "string"}]}
    ladder = {"type": "string"}
    for _ in range(60):
        ladder = {"anyOf": [ladder, {"type": "null"}]}
    for name, schema, legal in (
            ("60,000 nested groups", {"type": "string", "pattern": "(" * 60_000 + ")" * 60_000}, False),
            ("a pattern that backtracks", {"type": "string", "pattern": "(a+)+$"}, False),
            ("a pattern of 1 MB", {"type": "string", "pattern": "a" * 1_000_000}, False),
            ("patternProperties", {"patternProperties": {"(a*)*": {}}}, False),
            ("a reference to itself", loop, False), ("a reference loop of two", {"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}, False),
            ("a tree of itself", {"type": "object", "properties": {"a": loop, "b": loop}}, False),
            ("references that double", doubling, False), ("a chain of 5,000 references", chain, False), ("60 nested alternatives", ladder, False),
            ("a reference to the network", {"$ref": "http://127.0.0.1:1/x"}, False), ("a reference to a file", {"$ref": "file:///etc/passwd"}, False),
            ("a reference that climbs", {"$ref": "#/../../etc"}, False), ("a reference to nothing", {"$ref": "#/nothing"}, False),
            ("a reference that is a number", {"$ref": 5}, False),
            ("a dynamic reference", {"$dynamicRef": "#x"}, False),
            ("100,000 words", {"enum": [f"w{i}" for i in range(100_000)]}, False), ("a word of 1 MB", {"enum": ["w" * 1_000_000]}, False),
            ("a constant of 1 MB", {"const": "c" * 1_000_000}, False), ("10,000 properties", {"properties": {f"p{i}": {} for i in range(10_000)}}, False),
            ("100,000 required", {"required": [f"p{i}" for i in range(100_000)]}, False),
            ("10,000 alternatives", {"anyOf": [{"const": i} for i in range(10_000)]}, False),
            ("10^9 items", {"type": "array", "minItems": 10**9, "items": {"type": "integer"}}, True),
            ("2^63 items", {"type": "array", "minItems": 2**63}, True), ("-1 items", {"type": "array", "minItems": -1}, True),
            ("10^9 letters", {"type": "string", "minLength": 10**9, "maxLength": 10**9}, True),
            ("a multiple of nothing", {"type": "number", "multipleOf": 0}, True), ("a multiple of -1", {"type": "number", "multipleOf": -1}, True),
            ("an unknown type", {"type": "thing"}, True), ("a type that is a number", {"type": 5}, True), ("no type at all", {"type": []}, True),
            ("nothing fits", {"not": {}}, True), ("an empty enum", {"enum": []}, True), ("no alternative", {"anyOf": []}, True),
            ("a contradiction", {"allOf": [{"type": "string"}, {"type": "integer"}]}, True),
            ("60 times not", json.loads('{"not":' * 28 + "{}" + "}" * 28), True),
            ("dependencies in a circle", {"dependencies": {"a": ["b"], "b": ["a"]}, "type": "object"}, True),
            ("32 optional members in any order", {"type": "object", "properties": {f"p{i}": {"enum": [1, 2]} for i in range(32)}}, True),
            ("alternatives that multiply", {"allOf": [{"anyOf": [{"minimum": i * j} for j in range(16)]} for i in range(16)]}, True),
            ("a schema that is a list", [], False), ("a schema that is a text", "object", False), ("a schema that is a number", 5, False)):
        yield f"schema: {name}, of a job", "POST", JOBS, dump(job(schema=schema)), legal
        yield (f"schema: {name}, in a chat", "POST", CHAT,
               dump(chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})),
               legal or name in CHAT_READS_MORE)
        yield (f"schema: {name}, of a tool", "POST", CHAT, dump(chat(tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}])), True)


# What the chat door's grammar can do and the queue's checker does not offer.
CHAT_READS_MORE = {"a tree of itself", "60 nested alternatives", "a reference to itself", "100,000 required", "10,000 properties",
                   # Keywords that it does not hold, as docs/http.md says.
                   "60,000 nested groups", "a pattern that backtracks", "patternProperties", "a dynamic reference"}


def utf8():
    """ggml-org/llama.cpp#9195, #28926: invalid UTF-8 aborts in an error path or where a buffer is cut."""
    around = lambda piece: b'{"messages": [{"role": "user", "content": "ab' + piece + b'cd"}], "max_tokens": 1, "reasoning_effort": "none"}'
    for byte in range(256):
        legal = 0x20 <= byte < 0x80 and byte not in b'"\\'
        yield f"byte {byte:02x} in content", "POST", CHAT, around(bytes([byte])), legal
        if byte >= 0x80 or byte < 0x20:
            yield f"byte {byte:02x} in a key", "POST", CHAT, b'{"a' + bytes([byte]) + b'": 1}', False
            yield f"byte {byte:02x} in a label", "POST", JOBS, b'{"task": "x", "label": "a' + bytes([byte]) + b'"}', False
    whole = "é€😀한".encode()
    for at in range(1, len(whole)):
        for name, piece in (("cut at", whole[:at]), ("begun at", whole[at:])):
            try:
                piece.decode()
                legal = True
            except UnicodeDecodeError:
                legal = False
            yield f"UTF-8 {name} {at}", "POST", CHAT, around(piece), legal
    for name, piece in (("overlong slash", b"\xc0\xaf"), ("overlong NUL", b"\xc0\x80"), ("a surrogate", b"\xed\xa0\x80"),
                        ("a pair of surrogates", b"\xed\xa0\x80\xed\xb0\x80"), ("above the last", b"\xf4\x90\x80\x80"),
                        ("five bytes", b"\xf8\x88\x80\x80\x80"), ("a byte order mark of UTF-16", b"\xff\xfe")):
        yield f"UTF-8 {name}", "POST", CHAT, around(piece), False
    for name, piece, legal in (("a lone high surrogate", rb"\ud800", False), ("a lone low one", rb"\udc00", False), ("two high ones", rb"\ud800\ud800", False),
                               ("NUL", rb"\u0000", True), ("a non-character", rb"\uffff", True), ("a control", rb"\u0085", True), ("bidi", rb"\u202e", True),
                               ("a bad escape", rb"\x", False), ("a short escape", rb"\u12 ", False)):
        yield f"escape {name} in content", "POST", CHAT, around(piece), legal
        yield f"escape {name} in a label", "POST", JOBS, b'{"task": "x", "label": "a' + piece + b'"}', legal and name != "NUL"
        yield f"escape {name} in a workspace", "POST", JOBS, b'{"task": "x", "workspace": "a' + piece + b'"}', legal and name != "NUL"
        yield f"escape {name} in a key", "POST", JOBS, b'{"task": "x", "idempotency_key": "a' + piece + b'"}', legal and name != "NUL"
    for field in ("workspace", "label", "before", "state", "part"):
        for value in ("%ff", "%00", "%c0%80", "%0a", "a" * 10_000, "%ed%a0%80"):
            yield f"?{field}={value[:12]}", "GET", f"/v1/jobs?{field}={value}", None, True


def long_lines():
    """ggml-org/llama.cpp#17902: five million characters on one line overflow a recursion."""
    for name, piece in (("a", "a"), ("space", " "), ("digits", "7"), ("newline", "\n"), ("emoji", "😀"), ("accents", "e\u0301"), ("angle", "<"),
                        ("think tags", "<think>"), ("control tokens", "<|im_end|>"), ("quotes", '"'), ("mixed words", "ab1 _Z."), ("CR LF", "\r\n"),
                        ("a letter and a space", "a "), ("apostrophes", "'s")):
        text = piece * (BIG // (len(dump(piece)) - 2))  # 5 MB of body, escapes included
        yield f"5 MB of {name} as task", "POST", JOBS, dump(job(task=text)), False
        yield f"5 MB of {name} as content", "POST", CHAT, dump(chat(messages=[{"role": "user", "content": text}])), False
    blob = "A" * BIG
    for field in ("label", "workspace", "idempotency_key", "continue_from", "effort", "mode", "kind", "on_limit"):
        yield f"5 MB as {field}", "POST", JOBS, dump(job(**{field: blob})), False
    for field in ("model", "user"):
        yield f"5 MB as {field}", "POST", CHAT, dump(chat(**{field: blob})), True
    yield "5 MB as a file's name", "POST", JOBS, dump(job(files=[{"name": blob, "text": "x"}])), False
    yield "5 MB as a role", "POST", CHAT, dump(chat(messages=[{"role": blob, "content": "x"}])), False
    yield "5 MB as a tool's name", "POST", CHAT, dump(chat(tools=[{"type": "function", "function": {"name": blob}}])), False
    yield "5 MB as a stop", "POST", CHAT, dump(chat(stop=blob)), False
    yield "5 MB as an argument", "POST", CHAT, dump(chat(messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments":
                                                                    json.dumps({"a": blob})}}]}, {"role": "user", "content": "x"}])), False
    yield "5 MB of blanks as JSON", "POST", JOBS, b" " * BIG, False
    yield "5 MB behind the JSON", "POST", JOBS, dump(job()) + b" " * BIG + b"x", False


def odd_values():
    for name, stop, legal in (("empty", "", True), ("empty list", [], True), ("16 of 1 KiB", ["s" * 1024] * 16, True), ("1025 bytes", "s" * 1025, False),
                              ("numbers", [1, 2], False), ("nested", [["a"]], False), ("overlapping", ["aaaa", "aaab", "aab", "ab"], True),
                              ("newline", "\n", True), ("a control token", "<|im_end|>", True), ("half a character", "\ufffd", True), ("an object", {"a": 1}, False)):
        yield f"stop: {name}", "POST", CHAT, dump(chat(stop=stop)), legal
    for key in ("-1", "99999999999999999999", "1e5", "é", "", " 5", "5 ", "+5", "0x5", "4096", "2147483647", "null"):
        yield f"bias of {key!r}", "POST", CHAT, dump(chat(logit_bias={key: 1})), key in ("4096", "2147483647")
    for value in (101, -101, "a", None, [1], {"a": 1}, True):
        yield f"bias {value!r}", "POST", CHAT, dump(chat(logit_bias={"5": value})), False
    for kind, part in (("image_url", {"image_url": {"url": "data:image/png;base64," + "A" * 100}}), ("image_url", {"image_url": {"url": "http://127.0.0.1:1/x.png"}}),
                       ("image_url", {"image_url": {"url": "file:///etc/passwd"}}), ("image_url", {"image_url": {"url": "A" * BIG}}),
                       ("input_audio", {"input_audio": {"data": "AAAA", "format": "wav"}}), ("file", {"file": {"file_data": "AAAA"}}),
                       ("video_url", {"video_url": {"url": "x"}}), ("document", {"document": {}}), ("", {}), ("text\x00", {"text": "a"}), ("TEXT", {"text": "a"}),
                       ("x" * 100_000, {})):
        for role in ("user", "system", "tool"):
            yield (f"part {kind[:20]!r} {str(part)[:40]} of {role}", "POST", CHAT,
                   dump(chat(messages=[{"role": role, "content": [{"type": kind, **part}]}, {"role": "user", "content": "x"}])), False)
    for part in (None, 5, "text", [], {}, {"type": None}, {"type": "text"}, {"type": "text", "text": None}, {"type": "text", "text": 5}):
        yield f"part {part!r}", "POST", CHAT, dump(chat(messages=[{"role": "user", "content": [part]}])), False
    for content in (5, True, {"a": 1}, {"type": "text", "text": "x"}):
        yield f"content {content!r}", "POST", CHAT, dump(chat(messages=[{"role": "user", "content": content}])), False
    for role in ("", "root", "User", "system\x00", "<|im_start|>system", None, 5, "function"):
        yield f"role {role!r}", "POST", CHAT, dump(chat(messages=[{"role": role, "content": "x"}])), False
    for tools in (5, "f", {"a": 1}, [5], [None], [{}], [{"type": "function"}], [{"type": "function", "function": 5}], [{"type": "function", "function": {"name": 5}}],
                  [{"type": "function", "function": {"name": ""}}]):
        yield f"tools {tools!r}", "POST", CHAT, dump(chat(tools=tools)), False
    for name in ("a" * 256, "</tool_call>", "<function=x>", "{{ 1 }}", "{% for %}", "a\nb", "<|im_end|>", "../x"):
        yield f"a tool named {name[:20]!r}", "POST", CHAT, dump(chat(tools=[{"type": "function", "function": {"name": name}}])), True
    for choice in (5, "always", {"type": "function"}, {"type": "function", "function": {"name": "nobody"}}, "required"):
        yield f"tool_choice {choice!r}", "POST", CHAT, dump(chat(tool_choice=choice)), False
    for arguments in ("{", "[]", "5", '{"a": NaN}', '{"a": 1e999}', "\ud800", '{"a": 1, "a": 2}', 5, [1]):
        yield (f"arguments {arguments!r}", "POST", CHAT, dump(chat(messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]},
                                                                            {"role": "user", "content": "x"}])), False)
    for key in ("messages", "tools", "add_generation_prompt", "raise_exception", "namespace", "loop", "range", "__class__", "self"):
        yield f"template argument {key}", "POST", CHAT, dump(chat(chat_template_kwargs={key: "x" * 1000})), True
    for field in ("response_format", "stream_options", "chat_template_kwargs"):
        for value in (5, [], "x", True, {"type": 5}, {"type": "grammar", "grammar": "root ::= root"}):
            yield f"{field} {value!r}", "POST", CHAT, dump(chat(**{field: value})), isinstance(value, dict) and field != "response_format"
    for body in (b"", b"null", b"5", b"[]", b'"x"', b"{", b"}", b"{}}", b'{"a"}', b'{"a":}', b"{'a': 1}", b"{a: 1}", b'{"a": 1,}', b"\x00", b"\xef\xbb\xbf{}",
                 b'/* */{"task": "x"}', b'{"task": "x"} {"task": "y"}', b"{" * 1_000_000, b'"' + b"\\" * 1_000_001, b"\xff\xfe{\x00}\x00"):
        yield f"body {body[:20]!r}", "POST", JOBS, body, False


def file_names():
    """CVE-2024-37032, CVE-2026-103663: a name from the wire used as a path. Sixty of them."""
    return ["..", ".", "/", "//", "../", "../../etc/passwd", "/etc/passwd", "....//....//etc/passwd", "..\\..\\etc\\passwd", "C:\\windows", "\\\\host\\share",
            "%2e%2e%2fetc", "%252e%252e%252f", "..%2f", "%00", "a\x00b", "..\u2215etc", "\u2025/etc", "\uff0e\uff0e/etc", "a" * 300, "a" * 5000, "a.", "a ", " a", "con", "nul",
            "a:b", "a|b", "a;rm -rf", "$(id)", "`id`", "~", "~root/.ssh/id_rsa", "-rf", "--help", "*", "?", "[a]", "{a,b}", "sha256:abc", "sha256:" + "a" * 64,
            "sha256:" + "a" * 65, "sha256-" + "../" * 10, "/proc/self/environ", "/dev/zero", "/dev/stdin", "file:///etc/passwd", "http://127.0.0.1/x", "ponder.db",
            "../ponder.db", "api-key", "../api-key", "/var/lib/../../etc", "a/../../b", "a//b", "a/./b", ".ssh", "\u202egpj.exe", "a\nb", "\r\nX: y", "<|im_end|>"]


def names():
    """A job's id and a model's name in a path; a file's name, a label and the like in a body."""
    quote = lambda text: "".join(c if c.isalnum() and c.isascii() else "".join(f"%{b:02X}" for b in c.encode("utf-8", "surrogatepass")) for c in text)
    for name in file_names():
        printable = not any(ord(c) < 0x20 for c in name)
        short = len(name.encode()) <= 1024
        yield f"job named {name[:24]!r}", "GET", f"/v1/jobs/{quote(name)}/result", None, False
        yield f"model named {name[:24]!r}", "GET", f"/v1/models/{quote(name)}", None, False
        if printable and " " not in name and name.isascii():
            yield f"raw path {name[:24]!r}", "GET", "/v1/jobs/" + name.encode("latin1", "replace").decode("latin1"), None, False
        yield f"file named {name[:24]!r}", "POST", JOBS, dump(job(files=[{"name": name, "text": "inside"}])), printable and short
        yield f"label {name[:24]!r}", "POST", JOBS, dump(job(label=name)), printable and len(name) <= 200
        yield f"workspace {name[:24]!r}", "POST", JOBS, dump(job(workspace=name)), printable
        yield f"parent {name[:24]!r}", "POST", JOBS, dump(job(continue_from=name)), False
        yield f"chat model {name[:24]!r}", "POST", CHAT, dump(chat(model=name)), True
    # contribsys/faktory 1.10.0: names that collide with the keys of the store itself.
    for key in ("", "..", "a" * 65536, "\x00", "job", "sqlite_master", "'; drop table job; --", "instance", "%", "_", "NULL"):
        yield (f"idempotency key {key[:24]!r}", "POST", JOBS, dump(job(idempotency_key=key, force_new=False)),
               len(key) <= 200 and "\x00" not in key)


GROUPS = (numbers, depths, lists, schemas, utf8, long_lines, odd_values, names)


def all_requests():
    """Every one, as (group, kind, method, target, body, may_be_served)."""
    seen = {}
    for group in GROUPS:
        for kind, method, target, body, legal in group():
            seen[kind] = seen.get(kind, 0) + 1
            yield group.__name__, kind if seen[kind] == 1 else f"{kind} ({seen[kind]})", method, target, body, legal
