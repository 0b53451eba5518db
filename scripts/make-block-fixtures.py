#!/usr/bin/env python3
"""Write the block-format fixtures and the codebook bitmaps of kernels/.

Needs the PyPI packages `numpy` and `gguf` (0.19). Run from the repository root:

    python3 scripts/make-block-fixtures.py

Fixtures, kernels/tests/data/blocks/<TYPE>.bin: u32 number of blocks (little-endian), the blocks
(random bytes; float scales kept finite), then the f32 values that `gguf` decodes them to. Q1_0,
Q2_0, Q8_1 and Q8_K are not decoded by `gguf`; their values come from the formulas below.

Bitmaps, kernels/src/blocks/grids/<grid>.bits: the codebooks of the IQ types. Each codebook is a
sorted set of base-3 or base-8 numbers, so a bit per number is all there is to store. They are read
off by decoding one block for every index.
"""
import hashlib
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "kernels/tests/data/blocks"
GRIDS = ROOT / "kernels/src/blocks/grids"

# type -> (elements, bytes, offsets of f16 fields)
LAYOUT = {
    "F16": (1, 2, [0]), "BF16": (1, 2, []),
    "Q4_0": (32, 18, [0]), "Q4_1": (32, 20, [0, 2]), "Q5_0": (32, 22, [0]), "Q5_1": (32, 24, [0, 2]),
    "Q8_0": (32, 34, [0]), "Q8_1": (32, 36, [0, 2]),
    "Q2_K": (256, 84, [80, 82]), "Q3_K": (256, 110, [108]), "Q4_K": (256, 144, [0, 2]),
    "Q5_K": (256, 176, [0, 2]), "Q6_K": (256, 210, [208]), "Q8_K": (256, 292, []),
    "IQ2_XXS": (256, 66, [0]), "IQ2_XS": (256, 74, [0]), "IQ2_S": (256, 82, [0]),
    "IQ3_XXS": (256, 98, [0]), "IQ3_S": (256, 110, [0]),
    "IQ1_S": (256, 50, [0]), "IQ1_M": (256, 56, []),
    "IQ4_NL": (32, 18, [0]), "IQ4_XS": (256, 136, [0]),
    "TQ1_0": (256, 54, [52]), "TQ2_0": (256, 66, [64]),
    "MXFP4": (32, 17, []), "NVFP4": (64, 36, []),
    "Q1_0": (128, 18, [0]), "Q2_0": (64, 18, [0]),
}


def f16(blocks, at):
    return np.ascontiguousarray(blocks[:, at:at + 2]).view(np.float16).astype(np.float32)


def by_formula(name, b):
    """Values of the types that `gguf` does not decode, in f32."""
    if name == "Q1_0":  # d, 128 sign bits, lowest first
        bits = np.unpackbits(b[:, 2:], axis=1, bitorder="little")
        return np.where(bits == 1, f16(b, 0), -f16(b, 0))
    if name == "Q2_0":  # d, four 2-bit levels -1..2 per byte, lowest first
        q = np.stack([(b[:, 2:] >> s) & 3 for s in (0, 2, 4, 6)], axis=-1).reshape(len(b), 64)
        return f16(b, 0) * (q.astype(np.float32) - np.float32(1))
    if name == "Q8_1":  # d, d * sum, 32 signed bytes
        return f16(b, 0) * np.ascontiguousarray(b[:, 4:]).view(np.int8).astype(np.float32)
    if name == "Q8_K":  # f32 d, 256 signed bytes, 16 sums
        return np.ascontiguousarray(b[:, :4]).view(np.float32) * np.ascontiguousarray(b[:, 4:260]).view(np.int8).astype(np.float32)
    raise KeyError(name)


def fixtures():
    FIXTURES.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20)
    for name, (n, size, halves) in LAYOUT.items():
        count = 256 if n == 1 else max(6, 512 // n)
        b = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for at in halves:
            b[:, at + 1] &= 0xFB  # lowest exponent bit off: never infinite or not a number
        if name == "IQ1_M":
            b[:, 48 + 5] &= 0xBF  # the same bit, where that format keeps it
        if name == "BF16":
            b[:, 0] &= 0x7F
        if name == "Q8_K":
            b[:, :4] = rng.standard_normal(count).astype(np.float32)[:, None].view(np.uint8)
        if name in ("Q1_0", "Q2_0", "Q8_1", "Q8_K"):
            y = by_formula(name, b)
        else:
            y = gguf.quants.dequantize(b, T[name])
        y = np.ascontiguousarray(y, dtype=np.float32)
        assert y.size == count * n, name
        (FIXTURES / f"{name}.bin").write_bytes(np.uint32(count).tobytes() + b.tobytes() + y.tobytes())
        print(f"{name:8} {count} blocks")


def one_per_index(name, entries, dims):
    """The codebook of type `name` as int8 [entries, dims], by decoding blocks that name every index."""
    _, size, _ = LAYOUT[name]
    per = 256 // dims
    b = np.zeros((entries // per, size), dtype=np.uint8)
    idx = np.arange(entries).reshape(-1, per)
    one = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    b[:, 0:2] = one
    if name == "IQ1_S":
        b[:, 2:34] = idx & 255
        qh = np.zeros((len(b), 8), np.uint16)
        for l in range(4):
            qh |= ((idx[:, l::4] >> 8) << (3 * l)).astype(np.uint16)
        b[:, 34:50] = qh.view(np.uint8)
    elif name == "IQ2_XXS":
        w = np.zeros((len(b), 8, 8), np.uint8)
        w[:, :, :4] = idx.reshape(-1, 8, 4)
        b[:, 2:66] = w.reshape(-1, 64)
    elif name == "IQ2_XS":
        b[:, 2:66] = idx.astype(np.uint16).view(np.uint8)
    elif name == "IQ2_S":
        b[:, 2:34] = idx & 255
        for l in range(4):
            b[:, 66:74] |= ((idx[:, l::4] >> 8) << (2 * l)).astype(np.uint8)
    elif name == "IQ3_XXS":
        b[:, 2:66] = idx
    elif name == "IQ3_S":
        b[:, 2:66] = idx & 255
        for g in range(8):
            b[:, 66:74] |= ((idx[:, g::8] >> 8) << g).astype(np.uint8)
    y = gguf.quants.dequantize(b, T[name]).reshape(entries, dims).astype(np.float64)
    y = {"IQ1_S": y - 0.125, "IQ3_S": y, "IQ3_XXS": y * 4}.get(name, y * 8)
    assert np.all(y == np.round(y)), name
    return y.astype(np.int8)


def grids():
    GRIDS.mkdir(parents=True, exist_ok=True)
    for name, entries, dims in (("IQ1_S", 2048, 8), ("IQ2_XXS", 256, 8), ("IQ2_XS", 512, 8),
                                ("IQ2_S", 1024, 8), ("IQ3_XXS", 256, 4), ("IQ3_S", 512, 4)):
        g = one_per_index(name, entries, dims)
        alphabet = np.unique(g)
        digits = np.searchsorted(alphabet, g)
        codes = (digits * len(alphabet) ** np.arange(dims)).sum(axis=1)
        assert np.all(np.diff(codes) > 0), f"{name} is not sorted"
        bits = np.zeros(len(alphabet) ** dims, np.uint8)
        bits[codes] = 1
        (GRIDS / f"{name.lower()}.bits").write_bytes(np.packbits(bits, bitorder="little").tobytes())
        print(f"{name:8} {entries} x {dims} of {alphabet.tolist()} sha256 {hashlib.sha256(g.tobytes()).hexdigest()[:16]}")


if __name__ == "__main__":
    grids()
    fixtures()
