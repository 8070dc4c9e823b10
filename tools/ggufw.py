"""Minimal GGUF v3 writer and reader (numpy only), for making test models.

add(name, array, qtype): array is row-major numpy [.., cols]; GGUF dims are written fastest-first.
Quantised types take float32 input and are quantised with the simplest correct rule; RANDOM_* fill blocks
with random bits and sane scales (for speed models only, where the numbers do not matter).
"""
import struct
import numpy as np

U8, I8, U16, I16, U32, I32, F32T, BOOL, STR, ARR, U64, I64, F64 = range(13)
TYPES = {  # name: (ggml id, block size, bytes per block)
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ4_XS": (23, 256, 136),
    "BF16": (30, 1, 2),
}


def _s(b):
    b = b.encode() if isinstance(b, str) else b
    return struct.pack("<Q", len(b)) + b


def _val(v, t):
    f = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32T: "<f", BOOL: "<?", U64: "<Q", I64: "<q", F64: "<d"}
    return _s(v) if t == STR else struct.pack(f[t], v)


def quantize(a, q):
    a = np.ascontiguousarray(a, dtype=np.float32)
    if q == "F32": return a.tobytes()
    if q == "F16": return a.astype(np.float16).tobytes()
    if q == "BF16":
        u = a.view(np.uint32)
        return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    if q == "Q8_0":
        b = a.reshape(-1, 32)
        d = (np.abs(b).max(1, keepdims=True) / 127.0).astype(np.float16)
        df = d.astype(np.float32)
        inv = np.where(df > 0, 1.0 / np.where(df > 0, df, 1), 0)
        qs = np.clip(np.rint(b * inv), -127, 127).astype(np.int8)
        return np.concatenate([d.view(np.uint8), qs.view(np.uint8)], 1).tobytes()
    if q == "Q4_0":
        b = a.reshape(-1, 32)
        i = np.abs(b).argmax(1)
        m = b[np.arange(len(b)), i]
        d = (m / -8.0).astype(np.float16)[:, None]
        df = d.astype(np.float32)
        inv = np.where(df != 0, 1.0 / np.where(df != 0, df, 1), 0)
        qs = np.clip(np.floor(b * inv + 8.5), 0, 15).astype(np.uint8)
        return np.concatenate([d.view(np.uint8), qs[:, :16] | (qs[:, 16:] << 4)], 1).tobytes()
    raise ValueError(q)


def random_blocks(n_elem, q, scale, rng):
    """Random valid blocks of a quantised type with values of roughly +-scale."""
    _, bs, bb = TYPES[q]
    n = n_elem // bs
    raw = rng.integers(0, 256, size=(n, bb), dtype=np.uint8)

    def h(col, v):
        x = (v * (0.8 + 0.4 * rng.random(n))).astype(np.float16)
        raw[:, col:col + 2] = x.view(np.uint8).reshape(n, 2)
    if q in ("Q4_0",): h(0, scale / 8)
    elif q == "Q8_0": h(0, scale / 127)
    elif q == "Q4_K": h(0, scale / (15 * 32)); h(2, scale / 63)
    elif q == "Q5_K": h(0, scale / (31 * 32)); h(2, scale / 63)
    elif q == "Q6_K": h(208, scale / (32 * 64))
    elif q == "Q2_K": h(80, scale / (3 * 8)); h(82, scale / 15)
    elif q == "Q3_K": h(108, scale / (4 * 32))
    elif q == "F16": return (rng.standard_normal(n_elem, dtype=np.float32) * scale).astype(np.float16).tobytes()
    elif q == "F32": return (rng.standard_normal(n_elem, dtype=np.float32) * scale).tobytes()
    else: raise ValueError(q)
    return raw.tobytes()


class Writer:
    def __init__(self, align=32):
        self.kv, self.t, self.align = [], [], align

    def add_kv(self, k, v, t):
        self.kv.append(_s(k) + struct.pack("<I", t) + _val(v, t))

    def add_arr(self, k, vs, t):
        self.kv.append(_s(k) + struct.pack("<IIQ", ARR, t, len(vs)) + b"".join(_val(v, t) for v in vs))

    def add(self, name, arr, q="F32"):
        """A tensor from float data, quantised to q."""
        self.t.append((name, list(arr.shape), q, lambda a=arr, q=q: quantize(a, q)))

    def add_lazy(self, name, shape, q, make):
        """A tensor whose bytes make() returns when the file is written."""
        self.t.append((name, list(shape), q, make))

    def write(self, path):
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.t), len(self.kv)))
            for k in self.kv: f.write(k)
            off = 0
            for name, shape, q, _ in self.t:
                i, bs, bb = TYPES[q]
                n = int(np.prod(shape)) // bs * bb
                f.write(_s(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape)) + struct.pack("<IQ", i, off))
                off += (n + self.align - 1) // self.align * self.align
            f.write(b"\0" * (-f.tell() % self.align))
            for name, shape, q, make in self.t:
                b = make()
                f.write(b)
                f.write(b"\0" * (-len(b) % self.align))


def read(path):
    """(metadata, {name: float32 array}) of a file with F32, F16, BF16 or Q8_0 tensors (types: metadata['__types__'])."""
    f = open(path, "rb").read()
    pos = 24
    _, ver, nt, nkv = struct.unpack_from("<4sIQQ", f, 0)

    def s():
        nonlocal pos
        n, = struct.unpack_from("<Q", f, pos); pos += 8 + n
        return f[pos - n:pos].decode("utf-8")

    def val(t):
        nonlocal pos
        if t == STR: return s()
        if t == ARR:
            e, n = struct.unpack_from("<IQ", f, pos); pos += 12
            return [val(e) for _ in range(n)]
        c = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32T: "<f", BOOL: "<?", U64: "<Q", I64: "<q", F64: "<d"}[t]
        v, = struct.unpack_from(c, f, pos); pos += struct.calcsize(c)
        return v
    kv = {}
    for _ in range(nkv):
        k = s(); t, = struct.unpack_from("<I", f, pos); pos += 4
        kv[k] = val(t)
    info = []
    for _ in range(nt):
        n = s(); d, = struct.unpack_from("<I", f, pos); pos += 4
        dims = struct.unpack_from(f"<{d}Q", f, pos); pos += 8 * d
        t, off = struct.unpack_from("<IQ", f, pos); pos += 12
        info.append((n, dims[::-1], t, off))
    al = kv.get("general.alignment", 32)
    base = (pos + al - 1) // al * al
    out, names = {}, {v[0]: k for k, v in TYPES.items()}
    kv["__types__"] = {}
    for n, shape, t, off in info:
        q = names[t]; _, bs, bb = TYPES[q]
        cnt = int(np.prod(shape)); raw = np.frombuffer(f, np.uint8, cnt // bs * bb, base + off)
        if q == "F32": a = raw.view(np.float32)
        elif q == "F16": a = raw.view(np.float16).astype(np.float32)
        elif q == "BF16": a = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif q == "Q8_0":
            b = raw.reshape(-1, 34)
            a = b[:, 2:].copy().view(np.int8).astype(np.float32) * b[:, :2].copy().view(np.float16).astype(np.float32)
        else: raise ValueError(q)
        out[n] = a.reshape(shape); kv["__types__"][n] = q
    return kv, out
