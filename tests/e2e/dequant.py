"""Quantised blocks to float32 with numpy, from the formats' description (docs/gguf.md) alone: what the
tests of the file tools compare with. Types by their GGUF id.
"""
import zlib

import numpy as np

F32, F16, Q4_0, Q5_0, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16, NVFP4 = 0, 1, 2, 6, 8, 12, 13, 14, 20, 23, 30, 40
NAMES = {F32: "F32", F16: "F16", BF16: "BF16", Q4_0: "Q4_0", Q5_0: "Q5_0", Q8_0: "Q8_0", Q4_K: "Q4_K", Q5_K: "Q5_K",
         Q6_K: "Q6_K", IQ4_NL: "IQ4_NL", IQ4_XS: "IQ4_XS", NVFP4: "NVFP4"}
IDS = {name: id_ for id_, name in NAMES.items()}
# values and bytes of a block
BLOCKS = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q4_0: (32, 18), Q5_0: (32, 22), Q8_0: (32, 34), Q4_K: (256, 144),
          Q5_K: (256, 176), Q6_K: (256, 210), IQ4_NL: (32, 18), IQ4_XS: (256, 136), NVFP4: (64, 36)}
LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def half(blocks, at):
    return blocks[:, at:at + 2].copy().view("<f2").astype(np.float32)


def nibbles(q):
    """[n, k] bytes: the low halves, then the high halves."""
    return np.concatenate([q & 15, q >> 4], axis=1)


def bits(b, at):
    return np.unpackbits(b[:, at:at + 4], axis=1, bitorder="little")


def q4_0(b):
    return half(b, 0) * (nibbles(b[:, 2:]).astype(np.float32) - 8)


def q5_0(b):
    return half(b, 0) * ((nibbles(b[:, 6:]) | bits(b, 2) << 4).astype(np.float32) - 16)


def q8_0(b):
    return half(b, 0) * b[:, 2:].view(np.int8).astype(np.float32)


def iq4_nl(b):
    return half(b, 0) * LEVELS[nibbles(b[:, 2:])]


def k_scales(s):
    """12 bytes: 8 scales and 8 minima of 6 bits."""
    low, mid, high = s[:, 0:4], s[:, 4:8], s[:, 8:12]
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=1)
    least = np.concatenate([mid & 63, (high >> 4) | (mid >> 6) << 4], axis=1)
    return scale.astype(np.float32), least.astype(np.float32)


def by_64(q):
    """128 bytes to 8 groups of 32 values: of each 32 bytes the low halves, then the high ones."""
    q = q.reshape(-1, 4, 1, 32)
    return np.concatenate([q & 15, q >> 4], axis=2).reshape(-1, 8, 32)


def k_affine(b, q):
    scale, least = k_scales(b[:, 4:16])
    return ((half(b, 0) * scale)[:, :, None] * q - (half(b, 2) * least)[:, :, None]).reshape(len(b), 256)


def q4_k(b):
    return k_affine(b, by_64(b[:, 16:]).astype(np.float32))


def q5_k(b):
    fifth = np.unpackbits(b[:, 16:48], axis=1, bitorder="little").reshape(-1, 32, 8).transpose(0, 2, 1)
    return k_affine(b, (by_64(b[:, 48:]) | fifth << 4).astype(np.float32))


def q6_k(b):
    low = b[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    q = (low | high << 4).reshape(-1, 16, 16).astype(np.float32) - 32
    scale = half(b, 208) * b[:, 192:208].view(np.int8).astype(np.float32)
    return (scale[:, :, None] * q).reshape(len(b), 256)


def iq4_xs(b):
    high = b[:, 2:4].copy().view("<u2")
    low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], axis=2).reshape(-1, 8).astype(np.int32)
    scale = low | (high >> np.arange(0, 16, 2, dtype=np.uint16) & 3).astype(np.int32) << 4
    q = b[:, 8:].reshape(-1, 8, 16)
    values = LEVELS[np.concatenate([q & 15, q >> 4], axis=2)]
    return (half(b, 0)[:, :, None] * (scale - 32).astype(np.float32)[:, :, None] * values).reshape(len(b), 256)


def nvfp4(b):
    e, m = b[:, :4] >> 3 & 15, (b[:, :4] & 7).astype(np.float32)
    scale = np.where(e == 0, m * 2.0**-10, (1 + m / 8) * 2.0**(e.astype(np.float32) - 8)).astype(np.float32)
    scale[b[:, :4] == 0x7F] = 0
    q = b[:, 4:].reshape(-1, 4, 8)
    return (scale[:, :, None] * E2M1[np.concatenate([q & 15, q >> 4], axis=2)]).reshape(len(b), 64)


READERS = {Q4_0: q4_0, Q5_0: q5_0, Q8_0: q8_0, Q4_K: q4_k, Q5_K: q5_k, Q6_K: q6_k, IQ4_NL: iq4_nl, IQ4_XS: iq4_xs, NVFP4: nvfp4}


def values(type_, data, n_in):
    """Rows of n_in values: float32 [n_rows, n_in]."""
    raw = np.frombuffer(bytes(data), np.uint8)
    if type_ == F32:
        out = raw.view("<f4")
    elif type_ == F16:
        out = raw.view("<f2").astype(np.float32)
    elif type_ == BF16:
        out = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        out = READERS[type_](raw.reshape(-1, BLOCKS[type_][1]))
    return out.reshape(-1, n_in)


# CRC-32 of one block's values, where byte i of the block is 73 i + 41 + 29 (i / 32) and its f16 scales are
# 2^-5 and 2^-6: figures that another implementation gave.
def block_crc(type_, scales):
    n = BLOCKS[type_][1]
    block = bytearray((73 * i + 41 + 29 * (i // 32)) % 256 for i in range(n))
    for at, bits_ in scales:
        block[at:at + 2] = bits_.to_bytes(2, "little")
    return zlib.crc32((values(type_, block, BLOCKS[type_][0]) + np.float32(0)).astype("<f4").tobytes())


D, M = 0x2800, 0x2400
CRCS = {Q4_0: (0xF0D25AFD, [(0, D)]), Q5_0: (0xFB92137A, [(0, D)]), Q8_0: (0x6A5A060C, [(0, D)]),
        Q4_K: (0xFC42B562, [(0, D), (2, M)]), Q5_K: (0xF30F7838, [(0, D), (2, M)]), Q6_K: (0x3CE01368, [(208, D)]),
        IQ4_NL: (0xB7BFE95D, [(0, D)]), IQ4_XS: (0xD2096A27, [(0, D)]), NVFP4: (0xAC82F2BA, [])}


def faults():
    """Types whose values here are not the other implementation's."""
    for type_, (crc, scales) in CRCS.items():
        if block_crc(type_, scales) != crc:
            yield f"{NAMES[type_]} is dequantised wrongly by the test itself"
