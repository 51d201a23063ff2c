#!/usr/bin/env python3
"""Holds the source against the house rules and prints `file:line: rule` for each breach.

    check_tree.py ROOT     exit 1 if there is a breach
    check_tree.py --self   shows that each rule can fail, on planted breaches
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# Who may include whom. An arrow that is not here is an error.
ALLOWED = {
    "engine/base": [],
    "kernels": ["engine/base"],
    "engine/generator": ["engine/base"],
    "engine/text": ["engine/base", "engine/generator"],
    "engine/artifact": ["engine/base", "kernels/quant"],
    "engine/models": ["engine/base", "engine/artifact", "kernels"],
    "engine/sample": ["engine/base"],
    "engine/run": ["engine/base", "engine/generator", "engine/text", "engine/artifact",
                   "engine/models", "engine/sample"],
    "engine/worker": ["engine/base", "engine/generator", "engine/text", "engine/artifact",
                      "engine/models", "engine/sample", "engine/run", "kernels"],
    "jobs": ["engine/base", "engine/generator"],
    "daemon": ["engine/base", "engine/generator", "jobs"],
    "clients": ["engine/base"],
    "mcp": ["engine/base", "clients/cpp"],
}
SOURCES = {".h", ".cc", ".inc", ".cu", ".cuh"}
MAX_LINES = 600
NATIVE = "-march=native: choose CPU paths at run time"
BANNED = [  # (pattern, where it is banned, what to say)
    (re.compile(r"\bstd::regex\b|#include <regex>"), r".*", "std::regex overflows the stack on long text"),
    (re.compile(r"\b(popen|system)\s*\("), r"(?!tests/).*", "no shell: start one fixed program with an argv vector"),
    (re.compile(r"\bstd::cout\b|\bprintf\s*\("), r"mcp/(?!protocol/).*", "stdout carries only protocol"),
    (re.compile(r"\bco_await\b|\bco_return\b"), r".*", "no coroutines: g++ 12 destroys some temporaries twice"),
    (re.compile(r"\bsetlocale\s*\(|\blocale::global\b"), r".*", "numbers are read and written in the C locale"),
    (re.compile(r"-march=native"), r".*", NATIVE),
    (re.compile(r"\busing namespace\b"), r".*\.h$", "no using namespace in a header"),
]
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")


def room_of(path):
    best = ""
    for room in ALLOWED:
        if path.startswith(room + "/") and len(room) > len(best):
            best = room
    return best


def check_includes(path, lines):
    room = room_of(path)
    if not room:
        return
    for number, line in enumerate(lines, 1):
        found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not found:
            continue
        target = found.group(1)
        to = room_of(target)
        if not to and "/" not in target:
            yield number, f'include "{target}" from the repository root'
        elif to and to != room and not any((target + "/").startswith(a + "/") for a in ALLOWED[room]):
            yield number, f"{room} may not know {to} ({target})"


def check_file(path, text):
    lines = text.splitlines()
    yield from check_includes(path, lines)
    for number, line in enumerate(lines, 1):
        for pattern, where, message in BANNED:
            if re.match(where, path) and pattern.search(line) and not line.lstrip().startswith("//"):
                yield number, message
        if UNFINISHED.search(line):
            yield number, "words of unfinished work"
    if len(lines) > MAX_LINES and not any("ong file:" in l for l in lines[:15]):
        yield len(lines), f"over {MAX_LINES} lines; split it, or say why at the top (\"Long file: ...\")"
    if path.endswith(".h") and "#pragma once" not in text:
        yield 1, "a header starts with #pragma once"


def check_doc(root, path, text):
    for number, line in enumerate(text.splitlines(), 1):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
            if "://" in target:
                continue
            if not (root / pathlib.Path(path).parent / target).exists():
                yield number, f"the link {target} leads nowhere"


def listed(root):
    if (root / ".git").exists():
        out = subprocess.run(["git", "-C", str(root), "ls-files"], capture_output=True, text=True).stdout
        return [l for l in out.splitlines() if (root / l).is_file()]
    return [str(p.relative_to(root)) for p in root.rglob("*")
            if p.is_file() and not str(p.relative_to(root)).startswith(("build/", "."))]


def check(root):
    breaches = []
    beast = []
    for path in listed(root):
        suffix = pathlib.Path(path).suffix
        if suffix in SOURCES:
            text = (root / path).read_text(errors="replace")
            breaches += [f"{path}:{n}: {m}" for n, m in check_file(path, text)]
            if re.search(r"#include <boost/beast", text):
                beast.append(path)
        elif suffix == ".cmake" or path.endswith("CMakeLists.txt"):
            text = (root / path).read_text()
            breaches += [f"{path}:{n}: {NATIVE}" for n, line in enumerate(text.splitlines(), 1) if "-march=native" in line]
        elif suffix == ".md":
            breaches += [f"{path}:{n}: {m}" for n, m in check_doc(root, path, (root / path).read_text())]
    product = [b for b in beast if not b.startswith("tests/")]
    if len(product) > 3:
        breaches.append(f"{product[3]}:1: Beast's headers in more than three files: {', '.join(product)}")
    return breaches


BEAST = "#include <boost/beast/http.hpp>\n"
PLANTED = {  # path: (text, what is said), or (a file each, what is said)
    "kernels/a.cc": ('#include "engine/models/model.h"\n', "may not know"),
    "mcp/b.cc": ('#include "jobs/job.h"\n', "may not know"),
    "jobs/c.cc": ('#include "daemon/http/x.h"\n', "may not know"),
    "daemon/d.cc": ('#include "kernels/ops/matmul.h"\n', "may not know"),
    "engine/text/e.h": ("using namespace std;\n", "using namespace"),
    "jobs/f.cc": ("#include <regex>\n", "std::regex"),
    "daemon/g.cc": ('int x = system("ls");\n', "no shell"),
    "mcp/h.cc": ("void f() { std::cout << 1; }\n", "stdout carries"),
    "jobs/i.cc": ("// TO" "DO later\n", "unfinished"),
    "jobs/j.cc": ("int x;\n" * 700, "over 600"),
    "docs/k.md": ("[here](nowhere.md)\n", "leads nowhere"),
    "clients/l.cc": ('#include "daemon_client.h"\n', "from the repository root"),
    "clients/p.cc": ('char* c = setlocale(LC_ALL, "");\n', "C locale"),
    "jobs/m.cc": ("task f() { co_return; }\n", "no coroutines"),
    "kernels/CMakeLists.txt": ("add_compile_options(-march=native)\n", "-march=native"),
    "kernels/n.cc": ("auto flags = \"-march=native\";\n", "-march=native"),
    "engine/text/o.h": ("int f();\n", "pragma once"),
    "daemon/http": ({f"daemon/http/{n}.cc": BEAST for n in range(4)}, "more than three files"),
}


def self_test():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for path, (text, want) in PLANTED.items():
            root = pathlib.Path(folder) / path.replace("/", "_")
            for file, content in (text if isinstance(text, dict) else {path: text}).items():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(content)
            got = check(root)
            if not any(want in g for g in got):
                print(f"planted {path}: nothing said {want!r}, only {got}")
                bad += 1
    print(f"{len(PLANTED) - bad} of {len(PLANTED)} planted breaches found")
    return bad


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        sys.exit(1 if self_test() else 0)
    found = check(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(found) or "the tree keeps the rules")
    sys.exit(1 if found else 0)
