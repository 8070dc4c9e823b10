"""A GGUF file as a Python object that can be taken apart, changed and written again, right or wrong.

Standard library only. Values of keys are kept as (type, value), arrays as (ARR, element type, list);
`Raw` stands for a value, key or descriptor written byte for byte as given.
"""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
T_F32, T_F16, T_Q8_0, T_Q4_K, T_I8, T_I32, T_BF16, T_NVFP4 = 0, 1, 8, 12, 24, 26, 30, 40
BLOCKS = {T_F32: (1, 4), T_F16: (1, 2), T_Q8_0: (32, 34), T_Q4_K: (256, 144), T_I8: (1, 1), T_I32: (1, 4), T_BF16: (1, 2),
          T_NVFP4: (64, 36)}


def string(b):
    b = b if isinstance(b, bytes) else b.encode()
    return struct.pack("<Q", len(b)) + b


def scalar(type_, value):
    return string(value) if type_ == STR else struct.pack("<" + FORMATS[type_], value)


class Raw(bytes):
    """Bytes that go into the file as they are."""


class Tensor:
    def __init__(self, name, ne, type_, data):
        self.name, self.ne, self.type, self.data = name, list(ne), type_, bytes(data)
        self.offset = None     # None: the right one
        self.claims_dims = None  # None: len(ne)
        self.shift = None      # added to the right offset

    def copy(self):
        return Tensor(self.name, self.ne, self.type, self.data)


class Gguf:
    def __init__(self):
        self.version, self.keys, self.tensors, self.align = 3, [], [], 32
        self.n_tensors = self.n_kv = None  # None: the right counts
        self.order = None                  # order of the data, as indices of tensors

    # -- keys, as [name, (type, value)] --
    def index(self, key):
        return next(i for i, (k, _) in enumerate(self.keys) if k == key)

    def get(self, key, default=None):
        return next((v for k, v in self.keys if k == key), default)

    def value(self, key):
        return self.get(key)[-1]

    def set(self, key, *value):
        value = value[0] if isinstance(value[0], Raw) else value
        for pair in self.keys:
            if pair[0] == key:
                pair[1] = value
                return
        self.keys.append([key, value])

    def drop(self, key):
        del self.keys[self.index(key)]

    def tensor(self, name):
        return next(t for t in self.tensors if t.name == name)

    def copy(self):
        g = Gguf()
        g.version, g.align = self.version, self.align
        g.keys = [[k, v if isinstance(v, Raw) else tuple(list(x) if isinstance(x, list) else x for x in v)] for k, v in self.keys]
        g.tensors = [t.copy() for t in self.tensors]
        return g

    # -- bytes --
    def pair_bytes(self, key, value):
        out = key if isinstance(key, Raw) else string(key)
        if isinstance(value, Raw):
            return out + value
        if value[0] == ARR:
            _, element, items = value
            return out + struct.pack("<IIQ", ARR, element, len(items)) + b"".join(scalar(element, v) for v in items)
        return out + struct.pack("<I", value[0]) + scalar(*value)

    def head(self):
        """Everything before the padding, and the places of its parts: [(what, start, end)]."""
        n_t = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_kv = len(self.keys) if self.n_kv is None else self.n_kv
        out = bytearray(b"GGUF" + struct.pack("<IQQ", self.version, n_t, n_kv))
        places = []
        for key, value in self.keys:
            start = len(out)
            out += self.pair_bytes(key, value)
            places.append((key, start, len(out)))
        offsets, at = {}, 0
        for i in self.order or range(len(self.tensors)):
            offsets[i] = at
            at += len(self.tensors[i].data) + -len(self.tensors[i].data) % self.align
        for i, t in enumerate(self.tensors):
            start = len(out)
            offset = (offsets[i] + (t.shift or 0)) % 2**64 if t.offset is None else t.offset
            dims = len(t.ne) if t.claims_dims is None else t.claims_dims
            out += t.name if isinstance(t.name, Raw) else string(t.name)
            out += struct.pack("<I", dims) + b"".join(struct.pack("<Q", n % 2**64) for n in t.ne)
            out += struct.pack("<IQ", t.type, offset)
            places.append((t.name, start, len(out)))
        return bytes(out), places

    def bytes(self):
        out = bytearray(self.head()[0])
        if self.tensors:
            out += b"\0" * (-len(out) % self.align)
        for i in self.order or range(len(self.tensors)):
            out += self.tensors[i].data
            out += b"\0" * (-len(self.tensors[i].data) % self.align)
        return bytes(out)


def read(path):
    """Reads a right file (only what a right file holds; errors are exceptions)."""
    data = open(path, "rb").read()
    at = 0

    def take(fmt):
        nonlocal at
        v = struct.unpack_from("<" + fmt, data, at)
        at += struct.calcsize("<" + fmt)
        return v if len(v) > 1 else v[0]

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at]

    def one(type_):
        return text() if type_ == STR else take(FORMATS[type_])

    g = Gguf()
    assert data[:4] == b"GGUF"
    at = 4
    g.version, n_t, n_kv = take("I"), take("Q"), take("Q")
    for _ in range(n_kv):
        key, type_ = text().decode(), take("I")
        if type_ == ARR:
            element, n = take("I"), take("Q")
            g.keys.append([key, (ARR, element, [one(element) for _ in range(n)])])
        else:
            g.keys.append([key, (type_, one(type_))])
        if key == "general.alignment":
            g.align = g.keys[-1][1][1]
    heads = []
    for _ in range(n_t):
        name, dims = text().decode(), take("I")
        ne = [take("Q") for _ in range(dims)]
        heads.append((name, ne, take("I"), take("Q")))
    start = at + -at % g.align
    for name, ne, type_, offset in heads:
        values, size = BLOCKS[type_]
        n = size
        for i, d in enumerate(ne):
            n *= d // values if i == 0 else d
        g.tensors.append(Tensor(name, ne, type_, data[start + offset:start + offset + n]))
    return g
