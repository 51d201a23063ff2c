#!/usr/bin/env python3
"""Writes blocks.bin: stored blocks of every quantised format and what gguf-py decodes them to.

    python3 make_blocks.py        (needs numpy and gguf >= 0.18 from PyPI)

Records: u32 GGUF type id, u32 number of blocks, the blocks, their elements as f32. Little endian.
Per format: random blocks with scales of usual size, one for each edge of an f16 scale (zeros of both
signs, subnormals, the largest, negative), and every value of the scale bytes of MXFP4 and NVFP4.
"""
import pathlib
import struct

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# where the f16 scales of a block lie
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [], T.NVFP4: []}
EDGES = np.array([0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0xb800], np.uint16)
RANDOM = 12


def blocks_of(kind, rng):
    elements, size = GGML_QUANT_SIZES[kind]
    edges = len(EDGES) * len(HALVES[kind])
    count = RANDOM + edges
    if kind == T.MXFP4:
        count = 256
    if kind == T.NVFP4:
        count = 64
    b = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES[kind]:
        b[:, at:at + 2] = rng.normal(0, 0.05, (count, 1)).astype(np.float16).view(np.uint8)
    for i, at in enumerate(HALVES[kind]):
        rows = slice(RANDOM + i * len(EDGES), RANDOM + (i + 1) * len(EDGES))
        b[rows, at:at + 2] = EDGES.reshape(-1, 1).view(np.uint8)
    if kind == T.MXFP4:
        b[:, 0] = np.arange(256)
    if kind == T.NVFP4:
        b[:, :4] = np.arange(256).reshape(64, 4)
    return b


def main():
    rng = np.random.default_rng(7)
    out = b""
    for kind in HALVES:
        b = blocks_of(kind, rng)
        x = dequantize(b, kind).astype(np.float32)
        out += struct.pack("<II", kind.value, len(b)) + b.tobytes() + x.tobytes()
    pathlib.Path(__file__).with_name("blocks.bin").write_bytes(out)


main()
