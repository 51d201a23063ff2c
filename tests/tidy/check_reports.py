#!/usr/bin/env python3
"""Holds docs/reliability.md against the tests, so that its map cannot rot.

    check_reports.py ROOT     exit 1 if there is a breach
    check_reports.py --self   shows that each rule can fail, on planted breaches

The rules: every report T1..T44 and 7a 1..34 and every promise P1..P25 has its row; every test that a
row names exists; one of them names the report; every harness of tests/fault has a planted bug, and
every planted bug of a promise is somewhere in tests.
"""
import pathlib
import re
import sys
import tempfile

REPORTS = [f"T{n}" for n in range(1, 45)] + [f"7a {n}" for n in range(1, 35)]
PROMISES = [f"P{n}" for n in range(1, 26)]
FILE = re.compile(r"`(tests/[\w./]+)`([^`]*)")


def rows(text, prefix):
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) >= 4 and re.fullmatch(prefix, cells[0]):
            yield number, cells


def defines(text, name):
    return re.search(rf"^\s*def {name}\(|^TEST\w*\(\w+,\s*{name}\)", text, re.M) is not None


def names_report(text, report, where):
    """Whether a test's file names the row (T7; 7a 3 or row 3) or one of its reports (repository#number)."""
    if report.startswith("T"):
        marks = [rf"\b{report}\b"]
    else:
        marks = [rf"(7a|\b[Rr]ow) {report.split()[1]}\b"]
    marks += [re.escape(mark) + r"\b" for mark in re.findall(r"[\w.-]+#\d+|CVE-\d+-\d+|[\w-]+/[\w-]+ [\d.]+", where)]
    return any(re.search(mark, text) for mark in marks)


def check_reports(root, text):
    seen = set()
    for number, (report, where, _, tests, *_) in rows(text, r"T\d+|7a \d+"):
        at = f"docs/reliability.md:{number}: {report}"
        if report in seen:
            yield f"{at} stands twice"
        seen.add(report)
        if tests.startswith("later: "):
            continue
        found = FILE.findall(tests)
        if not found:
            yield f"{at} names no test"
        named = False
        for file, names in found:
            path = root / file
            if not path.is_file():
                yield f"{at}: there is no {file}"
                continue
            source = path.read_text(errors="replace")
            named = named or names_report(source, report, where)
            for name in re.findall(r"\w+", names):
                if not defines(source, name):
                    yield f"{at}: {file} has no {name}"
        if found and not named:
            yield f"{at}: none of its tests names the report"
    for report in REPORTS:
        if report not in seen:
            yield f"docs/reliability.md: {report} is missing"


def check_promises(root, text):
    everything = "".join(path.read_text(errors="replace") for path in sorted((root / "tests").rglob("*"))
                         if path.suffix in (".py", ".cc", ".txt") and path.name != "check_reports.py")
    seen = set()
    for number, (promise, _, harnesses, bugs, *_) in rows(text, r"P\d+"):
        at = f"docs/reliability.md:{number}: {promise}"
        seen.add(promise)
        for harness in re.findall(r"`(\w+_test\.py)`", harnesses):
            if not (root / "tests/fault" / harness).is_file():
                yield f"{at}: there is no tests/fault/{harness}"
        for bug in re.findall(r"\w+", bugs):
            if not re.search(rf"\b{bug}\b", everything):
                yield f"{at}: no test plants {bug}"
    for promise in PROMISES:
        if promise not in seen:
            yield f"docs/reliability.md: {promise} is missing"


def planted_harnesses(root):
    """redis/redis#9285: a test without its assertion. Row 33: what cannot fail proves nothing."""
    lines = (root / "tests/fault/CMakeLists.txt").read_text()
    harnesses = set(re.findall(r"ponder_fault_test\(\w+ (\w+\.py)", lines))
    planted = set(re.findall(r"ponder_planted_test\(\w+ (\w+\.py)", lines))
    for harness in sorted(harnesses - planted):
        source = (root / "tests/fault" / harness).read_text(errors="replace")
        other = re.search(r"Planted bugs: (\w+\.py)", source)
        if not (other and other.group(1) in planted):
            yield f"tests/fault/CMakeLists.txt: {harness} has no planted bug"


def check(root):
    text = (root / "docs/reliability.md").read_text()
    return [*check_reports(root, text), *check_promises(root, text), *planted_harnesses(root)]


def self_test():
    promises = "".join(f"| {p} | it holds | `a_test.py` | bug |\n" for p in PROMISES)
    row = "| {} | some/where#{} | right | {} |\n"
    whole = "".join(row.format(r, n, "`tests/fault/a_test.py` works") for n, r in enumerate(REPORTS))
    source = '"""bug"""\n' + "".join(f"# some/where#{n}\n" for n in range(len(REPORTS))) + "def works():\n    pass\n"
    good = "ponder_fault_test(A a_test.py 9)\nponder_planted_test(B a_test.py bug x 9)\n"
    cases = [
        ("", promises + whole, source, good),
        ("T7 is missing", promises + whole.replace("| T7 |", "| T70 |"), source, good),
        ("there is no tests/fault/b_test.py", promises + whole.replace("a_test.py` works", "b_test.py` works", 1), source, good),
        ("has no fails", promises + whole.replace("` works", "` fails", 1), source, good),
        ("names no test", promises + whole.replace("`tests/fault/a_test.py` works", "none", 1), source, good),
        ("none of its tests names the report", promises + whole, source.replace("# some/where#3\n", ""), good),
        ("T1 stands twice", promises + whole + row.format("T1", 0, "`tests/fault/a_test.py` works"), source, good),
        ("P9 is missing", promises.replace("| P9 |", "| P99 |") + whole, source, good),
        ("no test plants bug", promises + whole, source.replace("bug", ""), good.replace("bug", "")),
        ("a_test.py has no planted bug", promises + whole, source, good.replace("ponder_planted_test", "#")),
    ]
    bad = 0
    for want, doc, test, cmake in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in (("docs/reliability.md", doc), ("tests/fault/a_test.py", test), ("tests/fault/CMakeLists.txt", cmake)):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            got = check(root)
            if bool(want) != bool(got) or not any(want in breach for breach in got or [want]):
                print(f"planted {want!r}: {got}")
                bad += 1
    print(f"{len(cases) - bad} of {len(cases)} cases are right")
    return bad


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        sys.exit(1 if self_test() else 0)
    breaches = check(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(breaches) or "docs/reliability.md and the tests say the same")
    sys.exit(1 if breaches else 0)
