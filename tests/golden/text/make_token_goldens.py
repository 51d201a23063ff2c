#!/usr/bin/env python3
"""Writes tokens_qwen35.jsonl, tokens_qwen2.jsonl and tokens_llama-bpe.jsonl: texts and the ids that the PyPI package
`tokenizers` (0.23.3) gives them with the bundled vocabulary, special tokens off.

    python3 make_token_goldens.py

The bundled tokenizer.json has no normaliser and the qwen35 pre-tokenizer. The other files are made
with the same vocabulary and the expression of qwen2 or of Llama 3 in its place.
"""
import json
import random
import sys
from pathlib import Path

import tokenizers
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[2] / "models" / "pebble" / "tokenizer.json"
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

PROSE = [
    "The quick brown fox jumps over the lazy dog.", "I'M don't WE'LL they've I'd he's we're it'S",
    "'tis the season; rock 'n' roll", "x=12345.6e7;", "$100 'tis", "...\n\n\nend  ",
    "_snake_case fooBar2 SCREAMING_CASE kebab-case", "a  b   c\n\n  d \n",
    "  \t\n\tfoo()\r\n\r\nbar", "price: 3,141.59 EUR (approx.)", "e-mail: someone@example.org",
    "Don\u2019t use \u201ccurly\u201d quotes\u2026", "100% sure? Yes!!! No\u2026",
    "https://example.org/a/b?c=d&e=f#g", "1/2 + 3/4 = 5/4", "A\u00a0B\u00a0 C", "tab\tsep\tvalues",
    "'\u017fabc and 's\u017f '\u017f", "'LLama 'Reed 'Vexed 'Doctor 'Mmm 'Test 'Sss",
]
CODE = [
    "def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    "SELECT * FROM t WHERE a = 'b' AND c >= 10;", "{\"a\": [1, 2.5, null, true], \"b\": \"c\\n\"}",
    "<div class=\"x\">text</div>\n<!-- note -->", "#include <vector>\n\nint main() { return 0; }\n",
    "if [ -f \"$1\" ]; then echo \"ok\"; fi", "x = [i for i in range(10) if i % 2 == 0]",
    "std::unordered_map<std::string, int> m{{\"a\", 1}};", "\\frac{a}{b} \\cdot \\sum_{i=0}^{n} x_i",
    "- item\n  - sub item\n    - deeper\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "```python\nprint('hi')\n```",
    "0xDEADBEEF 0b1010 1_000_000 1e-9", "a->b(c, *d)[&e] ^= ~f << 2;", "\r\n\r\n  \r\n x",
]
SCRIPTS = [
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002\u30c6\u30b9\u30c8",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! 42",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0663\u0664\u066b",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "caf\u00e9 na\u00efve \u00fcber \u0153uvre",
    "cafe\u0301 nai\u0308ve u\u0308ber", "e\u0301te\u0301", "\u0301x", " \u0301x \u0301", "a\u0300\u0301\u0302b",
    "\u1100\u1161\u11a8 jamo", "Z\u0335a\u0336l\u0337g\u0338o", "\u216b \u00b2 \u00bd \u2460 \u3007 \u0663\u0664\u066b",
    "\U0001f600\U0001f601 \U0001f469\u200d\U0001f4bb \U0001f1ec\U0001f1f7 \u2764\ufe0f \U0001f44d\U0001f3fd",
    "\u2192 \u2211 \u221a \u2260 \u2264 \u221e \u00d7 \u00f7", "\u2500\u2502\u250c\u2510 \u2588\u2591", "\U0001d4d0\U0001d4d1 math \U0001d7d8",
    "\ufeffbom \u200bzero\u200bwidth \u200ejoin", "\u2028line\u2029para\u0085next\u3000ideographic",
    "\u1680ogham\u2003em\u2009thin\u202fnarrow", "ﬁ ﬂ ligatures \u017f long s", "mixed\u4e2d\u6587and\u0440\u0443\u0441123\u0663",
    "\x00\x01\x1c\x1d\x1e\x1f\x7f", "\x0b\x0c vt ff", "\ue000private \U000f0000",
]
SPECIAL = ["<|im_start|>user\nhi<|im_end|>", "<think>\n\n</think>", "a<tool_call>b", "<|endoftext|", "<<think>>"]


def random_lines(rng, count):
    pools = [
        "abcdefghijklmnopqrstuvwxyz", "ABCDEFG", "0123456789", "    \t\n\r", " ", "\n", "'\"`.,;:!?-_()[]{}<>/\\|@#$%^&*+=~",
        "\u00e9\u00fc\u00df\u00f1\u0101", "\u0301\u0308\u0323\u20dd\ufe0f\u094d", "\u4e00\u4e8c\u4e09\u56db\u3042\u30a2\u3002\uff0c",
        "\u0430\u0431\u0432\u03b1\u03b2\u05d0\u0628\u0915\u0e01", "\U0001f600\U0001f680\u2603\u200d", "\u0663\u096b\u00b2\u2164",
        "\u00a0\u2003\u3000\u0085\u2028", "'s'S't're'll'VE'd'm",
    ]
    for _ in range(count):
        text = ""
        for _ in range(rng.randint(1, 14)):
            pool = rng.choice(pools)
            text += "".join(rng.choice(pool) for _ in range(rng.choice([1, 1, 2, 3, 7])))
        yield text


def texts():
    rng = random.Random(20)
    yield from PROSE + CODE + SCRIPTS + SPECIAL
    for n in (1, 2, 3, 4, 7, 8, 15, 16, 17, 33):
        for c in (" ", "\n", "\t", "\r\n", "a", "=", "0", "\u4e2d", "\u0301", " \n"):
            yield c * n
            yield "x" + c * n + "y"
    words = (" ".join(PROSE) + " " + " ".join(CODE)).split(" ")
    for _ in range(60):
        yield " ".join(rng.choice(words) for _ in range(rng.randint(3, 25)))
    yield from random_lines(rng, 260)


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    spec = json.loads(SOURCE.read_text())
    assert spec["normalizer"] is None
    spec["added_tokens"] = []  # with them, their texts would be cut out of plain text
    for name, pattern in (("qwen35", None), ("qwen2", QWEN2), ("llama-bpe", LLAMA)):
        if pattern:
            spec["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
        spec["model"]["ignore_merges"] = name == "llama-bpe"
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        with open(HERE / f"tokens_{name}.jsonl", "w", encoding="utf-8") as out:
            count = 0
            for text in dict.fromkeys(texts()):
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                pieces = [p for p, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
                out.write(json.dumps({"text": text, "ids": ids, "pieces": len(pieces)}, ensure_ascii=True) + "\n")
                count += 1
        print(name, count, file=sys.stderr)


if __name__ == "__main__":
    main()
