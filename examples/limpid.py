"""limpid.h for Python, through ctypes: the structs and functions of include/limpid.h under their own names,
and three small classes around them. One file to copy; tests/e2e/library.py compares it with the header.

    with Model("model.gguf") as model, Engine(model) as engine:
        for event in Request(engine, model.tokenize("The capital of France is"), max_tokens=8):
            print(event.text, end="", flush=True)

The library is liblimpid.so.0, or what the environment variable LIMPID_LIBRARY names. Calls release Python's
lock, so other Python threads run while one waits for an event.
"""
import ctypes
import os
from collections import namedtuple
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint, c_uint64, c_void_p)

(OK, INVALID, FORMAT, IO, MEMORY, UNSUPPORTED, LIMIT, NUMERIC, CANCELLED, TIMEOUT, BUSY) = range(11)
(EVENT_NONE, EVENT_PROMPT, EVENT_TOKEN, EVENT_DONE) = range(4)
(SPECIAL, BOS) = (1, 2)
HISTOGRAM_BUCKETS = 24
MAX_DRAFT = 16


# ---- the structs, field by field as in the header

class limpid_error(Structure):
    _fields_ = [("status", c_int), ("text", c_char * 1024)]


class limpid_model_options(Structure):
    _fields_ = [("backend", c_char_p), ("cpu_level", c_char_p), ("n_threads", c_int), ("pin", c_char_p),
                ("huge_pages", c_char_p), ("prefetch", c_bool), ("repack", c_char_p), ("load", c_char_p), ("experts", c_char_p),
                ("vram_budget_bytes", c_uint64), ("vocab_only", c_bool),
                ("memory_budget_bytes", c_uint64), ("expert_profile", c_char_p), ("reserve_bytes", c_uint64),
                ("ranks", c_void_p), ("pipeline", c_int32), ("shard_experts", c_char_p), ("attention_parallel", c_char_p),
                ("rank_timeout_s", c_double)]


class limpid_rank_info(Structure):
    _fields_ = [("host", c_char_p), ("step_s", c_double), ("wait_s", c_double), ("memory_bytes", c_uint64),
                ("kv_pages", c_int64), ("kv_pages_free", c_int64), ("expert_slots", c_uint64), ("expert_hits", c_uint64),
                ("expert_ahead", c_uint64), ("expert_misses", c_uint64), ("expert_reads", c_uint64),
                ("expert_read_bytes", c_uint64), ("expert_wait_s", c_double)]


class limpid_model_info(Structure):
    _fields_ = [("architecture", c_char_p), ("name", c_char_p), ("backend", c_char_p), ("matmul_kernel", c_char_p),
                ("n_layers", c_int32), ("n_vocab", c_int32), ("n_embd", c_int32), ("n_threads", c_int32),
                ("n_context", c_int64), ("top_k", c_int32), ("n_draft_layers", c_int32), ("file_bytes", c_uint64),
                ("n_tensors", c_uint64), ("n_bound", c_uint64), ("n_ignored", c_uint64), ("has_chat_template", c_bool)]


class limpid_model_sampling(Structure):
    _fields_ = [(name, c_double) for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")]


class limpid_engine_options(Structure):
    _fields_ = [("n_context", c_int64), ("n_kv_tokens", c_int64), ("kv_type", c_char_p), ("route", c_char_p),
                ("chunk", c_int64), ("max_batch_tokens", c_int64), ("max_seqs", c_int32), ("max_queue", c_int32),
                ("speculate", c_int32), ("no_prefix_cache", c_bool), ("cache_dir", c_char_p),
                ("cache_dir_bytes", c_uint64), ("deterministic", c_bool), ("trace_path", c_char_p)]


class limpid_memory_plan(Structure):
    _fields_ = [("mapped_weights", c_uint64), ("copied_weights", c_uint64), ("kv_cache", c_uint64),
                ("step_buffers", c_uint64), ("available", c_uint64), ("n_context", c_int64), ("n_kv_tokens", c_int64),
                ("max_batch_tokens", c_int64), ("n_kv_ranks", c_int32), ("on_device", c_int32)]


class limpid_histogram(Structure):
    _fields_ = [("bound", c_double * HISTOGRAM_BUCKETS), ("count", c_uint64 * HISTOGRAM_BUCKETS),
                ("n_buckets", c_int32), ("sum", c_double)]


class limpid_engine_stats(Structure):
    _fields_ = ([(name, c_int64) for name in ("n_waiting", "n_running", "pages", "pages_free", "pages_cached",
                                              "page_tokens")] +
                [(name, c_uint64) for name in ("steps", "requests", "finished_stop", "finished_length", "failed",
                                               "cancelled", "rejected", "prompt_tokens", "cached_tokens",
                                               "cached_disk_tokens", "generated_tokens", "preemptions", "draft_tokens",
                                               "accepted_tokens")] +
                [("drafted_at", c_uint64 * MAX_DRAFT), ("accepted_at", c_uint64 * MAX_DRAFT), ("draft_switches", c_uint64)] +
                [("drafting", c_bool)] +
                [(name, c_uint64) for name in ("route_expanded", "route_absorbed", "route_sparse", "route_dense",
                                               "route_gqa", "disk_pages", "disk_bytes", "disk_reads", "disk_writes",
                                               "disk_damaged", "disk_dropped", "expert_slots", "expert_hits", "expert_ahead",
                                               "expert_misses", "expert_reads", "expert_read_bytes")] +
                [("expert_wait_s", c_double), ("last_step_age_s", c_double), ("device_failed", c_bool)] +
                [(name, limpid_histogram) for name in ("batch_tokens", "batch_sequences", "step_s", "ttft_s",
                                                       "token_s", "queue_s")])


class limpid_step_info(Structure):
    _fields_ = ([("step", c_uint64), ("end_s", c_double), ("duration_s", c_double)] +
                [(name, c_int32) for name in ("prompt_tokens", "answer_tokens", "draft_tokens", "sequences")] +
                [(name, c_int64) for name in ("n_waiting", "n_running", "pages_free")] +
                [(name, c_int32) for name in ("route_expanded", "route_absorbed", "route_sparse", "route_dense",
                                               "route_gqa")])


class limpid_probe(Structure):
    _fields_ = [("name", c_char_p), ("layer", c_int32), ("is_int", c_bool), ("n_rows", c_int64),
                ("ranges", POINTER(c_int64)), ("n_ranges", c_size_t), ("n_dims", c_int32), ("dims", c_int64 * 2),
                ("n_found", c_int64), ("needs", c_char_p)]


class limpid_probe_route(Structure):
    _fields_ = [("layer", c_int32), ("first", c_int64), ("n", c_int64), ("name", c_char_p)]


class limpid_watch(Structure):
    LOGITS = CFUNCTYPE(None, c_void_p, c_int64, c_int64, POINTER(c_float))
    HIDDEN = CFUNCTYPE(None, c_void_p, c_int32, c_int64, c_int64, POINTER(c_float))
    SELECTED = CFUNCTYPE(None, c_void_p, c_int32, c_int64, c_int64, POINTER(c_int32), POINTER(c_int32), c_int64)
    PROBED = CFUNCTYPE(None, c_void_p, c_size_t, c_int64, c_int64, c_void_p)
    _fields_ = [("user", c_void_p), ("logits", LOGITS), ("hidden", HIDDEN), ("selected", SELECTED),
                ("probes", c_void_p), ("probed", PROBED)]


class limpid_request_options(Structure):
    IS_GONE = CFUNCTYPE(c_bool, c_void_p)
    ON_EVENT = CFUNCTYPE(None, c_void_p)
    _fields_ = [("tokens", POINTER(c_int32)), ("n_tokens", c_size_t), ("max_tokens", c_int64), ("n", c_int32),
                ("bias_ids", POINTER(c_int32)), ("bias", POINTER(c_float)), ("n_bias", c_size_t),
                ("repetition_penalty", c_float), ("presence_penalty", c_float), ("frequency_penalty", c_float),
                ("dry_multiplier", c_float), ("dry_base", c_float), ("dry_allowed_length", c_int32),
                ("dry_breakers", POINTER(c_char_p)), ("n_dry_breakers", c_size_t), ("min_tokens", c_int64),
                ("temperature", c_float), ("min_p", c_float), ("top_k", c_int32), ("typical_p", c_float),
                ("top_p", c_float), ("seed", c_uint64), ("stop", POINTER(c_char_p)), ("n_stop", c_size_t),
                ("stop_ids", POINTER(c_int32)), ("n_stop_ids", c_size_t), ("ignore_eos", c_bool),
                ("skip_special", c_bool), ("shown_ids", POINTER(c_int32)), ("n_shown_ids", c_size_t),
                ("grammar_kind", c_char_p), ("grammar", c_char_p), ("grammar_len", c_size_t),
                ("grammar_after", c_int32), ("n_logprobs", c_int32), ("prompt_logprobs", c_bool), ("priority", c_int32),
                ("timeout_ms", c_int64), ("id", c_char_p), ("is_gone", IS_GONE), ("on_event", ON_EVENT), ("user", c_void_p)]


class limpid_event(Structure):
    _fields_ = [("kind", c_int), ("choice", c_int32), ("token", c_int32), ("text", c_void_p), ("text_len", c_size_t),
                ("has_logprob", c_bool), ("logprob", c_float), ("top_ids", POINTER(c_int32)),
                ("top_logprobs", POINTER(c_float)), ("n_top", c_int32), ("finish_reason", c_char_p),
                ("stop_text", c_char_p), ("stop_id", c_int32), ("n_prompt", c_int64), ("n_generated", c_int64),
                ("n_cached", c_int64), ("n_drafted", c_int64), ("n_accepted", c_int64), ("last", c_bool)]


# ---- the functions: result, then arguments. A handle is a c_void_p, a limpid_status a c_int.

_handle, _out, _err = c_void_p, POINTER(c_void_p), POINTER(limpid_error)
_bytes = (POINTER(c_void_p), POINTER(c_size_t))  # where a block that limpid_free takes, and its length, go
FUNCTIONS = {
    "limpid_version": (c_char_p,),
    "limpid_free": (None, c_void_p),
    "limpid_set_log_level": (c_int, c_char_p, _err),
    "limpid_ranks_join": (c_int, _out, _err),
    "limpid_ranks_rank": (c_int32, _handle),
    "limpid_ranks_size": (c_int32, _handle),
    "limpid_ranks_follow": (c_int, _handle, _err),
    "limpid_ranks_check": (c_int, _handle, _err),
    "limpid_ranks_doubt": (None, _handle),
    "limpid_ranks_leave": (None, _handle),
    "limpid_model_default_options": (limpid_model_options,),
    "limpid_model_open": (c_int, _out, c_char_p, POINTER(limpid_model_options), _err),
    "limpid_model_close": (None, _handle),
    "limpid_model_get_info": (limpid_model_info, _handle),
    "limpid_model_get_sampling": (limpid_model_sampling, _handle),
    "limpid_tokenize": (c_int, _handle, c_char_p, c_size_t, c_uint, *_bytes, _err),
    "limpid_detokenize": (c_int, _handle, POINTER(c_int32), c_size_t, c_bool, *_bytes, _err),
    "limpid_token_bytes": (c_int, _handle, c_int32, *_bytes, _err),
    "limpid_token_find": (c_int32, _handle, c_char_p, c_size_t),
    "limpid_token_is_stop": (c_bool, _handle, c_int32),
    "limpid_model_chat_template": (c_char_p, _handle),
    "limpid_status_name": (c_char_p, c_int),
    "limpid_chat_prompt": (c_int, _handle, c_char_p, c_char_p, *_bytes, _err),
    "limpid_engine_default_options": (limpid_engine_options,),
    "limpid_plan": (c_int, POINTER(limpid_memory_plan), c_char_p, POINTER(limpid_model_options),
                    POINTER(limpid_engine_options), _err),
    "limpid_engine_plan": (c_int, POINTER(limpid_memory_plan), _handle, POINTER(limpid_engine_options), _err),
    "limpid_engine_new": (c_int, _out, _handle, POINTER(limpid_engine_options), _err),
    "limpid_engine_free": (c_int, _handle, _err),
    "limpid_engine_context": (c_int64, _handle),
    "limpid_engine_kv_bytes": (c_size_t, _handle),
    "limpid_engine_scratch_bytes": (c_size_t, _handle),
    "limpid_engine_self_check": (c_int, _handle, c_bool, POINTER(c_void_p), _err),
    "limpid_engine_start": (c_int, _handle, _err),
    "limpid_engine_stop": (None, _handle),
    "limpid_engine_step": (c_int, _handle, POINTER(c_int64), _err),
    "limpid_engine_get_stats": (limpid_engine_stats, _handle),
    "limpid_engine_get_ranks": (c_size_t, _handle, POINTER(limpid_rank_info), c_size_t),
    "limpid_engine_get_steps": (c_size_t, _handle, c_uint64, POINTER(limpid_step_info), c_size_t, POINTER(c_double)),
    "limpid_engine_trace": (c_int, _handle, c_char_p, *_bytes, _err),
    "limpid_dump_on_crash": (c_int, c_char_p, _err),
    "limpid_probes_new": (c_int, _out, _handle, POINTER(c_char_p), c_size_t, c_int64, _err),
    "limpid_probes_free": (None, _handle),
    "limpid_probes_count": (c_size_t, _handle),
    "limpid_probes_get": (limpid_probe, _handle, c_size_t),
    "limpid_probes_count_routes": (c_size_t, _handle),
    "limpid_probes_get_route": (limpid_probe_route, _handle, c_size_t),
    "limpid_sequence_new": (c_int, _out, _handle, _err),
    "limpid_sequence_free": (None, _handle),
    "limpid_sequence_append": (c_int, _handle, POINTER(c_int32), c_size_t, POINTER(limpid_watch), POINTER(c_float),
                               _err),
    "limpid_sequence_length": (c_int64, _handle),
    "limpid_sequence_truncate": (None, _handle, c_int64),
    "limpid_argmax": (c_int32, _handle, POINTER(c_float)),
    "limpid_request_default_options": (limpid_request_options,),
    "limpid_request_new": (c_int, _out, _handle, POINTER(limpid_request_options), _err),
    "limpid_request_next": (c_int, _handle, POINTER(limpid_event), _err),
    "limpid_request_poll": (c_int, _handle, POINTER(limpid_event), c_int64, _err),
    "limpid_request_cancel": (None, _handle),
    "limpid_request_free": (None, _handle),
}

lib = ctypes.CDLL(os.environ.get("LIMPID_LIBRARY", "liblimpid.so.0"))
for _name, (_result, *_arguments) in FUNCTIONS.items():
    getattr(lib, _name).restype, getattr(lib, _name).argtypes = _result, _arguments


# ---- the classes

class Error(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def call(function, *arguments):
    """Calls a function that returns a status and takes a limpid_error last."""
    err = limpid_error()
    status = function(*arguments, byref(err))
    if status != OK:
        raise Error(status, err.text.decode())


def take_bytes(function, *arguments):
    """Calls a function that hands out a block of bytes, and frees the block."""
    block, n_bytes = c_void_p(), c_size_t()
    call(function, *arguments, byref(block), byref(n_bytes))
    try:
        return ctypes.string_at(block, n_bytes.value)
    finally:
        lib.limpid_free(block)


def make_options(defaults, values):
    """A struct of options with some fields set; a text is given as its UTF-8."""
    names = {name for name, *_ in defaults._fields_}
    for name, value in values.items():
        if name not in names:
            raise TypeError(f"{type(defaults).__name__} has no field {name}")
        setattr(defaults, name, value.encode() if isinstance(value, str) else value)
    return defaults


class Handle:
    """A handle and how it is given back; use with `with`, or call close."""

    def __init__(self, free, new, *arguments):
        self.handle, self._free = c_void_p(), free
        call(new, byref(self.handle), *arguments)

    def close(self):
        if self.handle:
            handle, self.handle = self.handle, c_void_p()
            self._free(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Model(Handle):
    def __init__(self, path, **options):
        super().__init__(lib.limpid_model_close, lib.limpid_model_open, os.fsencode(path),
                         byref(make_options(lib.limpid_model_default_options(), options)))

    def tokenize(self, text, flags=SPECIAL | BOS):
        data, ids, n_ids = text.encode(), c_void_p(), c_size_t()
        call(lib.limpid_tokenize, self.handle, data, len(data), flags, byref(ids), byref(n_ids))
        try:
            return list((c_int32 * n_ids.value).from_address(ids.value))
        finally:
            lib.limpid_free(ids)

    def detokenize(self, ids, skip_special=True):
        return take_bytes(lib.limpid_detokenize, self.handle, (c_int32 * len(ids))(*ids), len(ids),
                          skip_special).decode()

    def chat_prompt(self, messages_json, options_json=None):
        """Tokenize the result with SPECIAL alone: the template has written what a text begins with."""
        return take_bytes(lib.limpid_chat_prompt, self.handle, messages_json.encode(),
                          options_json.encode() if options_json else None).decode()


class Engine(Handle):
    def __init__(self, model, **options):
        super().__init__(lambda handle: call(lib.limpid_engine_free, handle), lib.limpid_engine_new, model.handle,
                         byref(make_options(lib.limpid_engine_default_options(), options)))

    def start(self):
        call(lib.limpid_engine_start, self.handle)


Event = namedtuple("Event", "kind choice token text finish_reason n_prompt n_generated last")


class Request(Handle):
    """Iterates over events until the last one; stop: a list of texts. Other options by the header's names."""

    def __init__(self, engine, ids, stop=(), **options):
        texts = (c_char_p * len(stop))(*[text.encode() for text in stop])
        values = dict(options, tokens=(c_int32 * len(ids))(*ids), n_tokens=len(ids), stop=texts, n_stop=len(stop))
        self._callbacks = [options.get("on_event"), options.get("is_gone")]  # must outlive the request
        super().__init__(lib.limpid_request_free, lib.limpid_request_new, engine.handle,
                         byref(make_options(lib.limpid_request_default_options(), values)))
        self._ended = False

    def next(self):
        """Waits for the next event, a copy of it; CANCELLED, TIMEOUT and the like are raised as Error."""
        e = limpid_event()
        call(lib.limpid_request_next, self.handle, byref(e))
        text = ctypes.string_at(e.text, e.text_len).decode(errors="replace")  # a prompt's token may be half a character
        reason = e.finish_reason.decode() if e.finish_reason else None
        return Event(e.kind, e.choice, e.token, text, reason, e.n_prompt, e.n_generated, e.last)

    def cancel(self):
        lib.limpid_request_cancel(self.handle)

    def __iter__(self):
        return self

    def __next__(self):
        if self._ended:
            raise StopIteration
        event = self.next()
        self._ended = event.last
        return event
