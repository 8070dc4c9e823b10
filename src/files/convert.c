#include "files/convert.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/progress.h"
#include "files/finite.h"
#include "files/folder_files.h"
#include "files/new_file.h"
#include "files/quantize_presets.h"
#include "hf/hf_pieces.h"

#define MAX_PADDING 64
#define FORGET_PIECES 16 // of a tensor: a stack of experts may be larger than memory

struct buffers { // of one thread
    float *values;
    uint8_t *bytes;
};

struct lp_convert {
    struct lp_convert_options options;
    struct lp_hf_plan plan;
    lp_type *types;  // [n_tensors], in the file
    bool *written;   // [n_tensors]: factors are not where they are multiplied in
    uint64_t *place; // [n_tensors]: index in the file
    struct lp_convert_result result;

    struct lp_new_file *file;
    struct buffers *buffers; // [n_threads]
    int n_threads;
    atomic_ullong done_bytes;
    struct lp_progress bar;
};

// ---- types

static bool is_float(lp_type type) {
    return type == LP_TYPE_F32 || type == LP_TYPE_F16 || type == LP_TYPE_BF16;
}

static bool is_quantised(const struct lp_hf_tensor *t) {
    return t->n_parts > 0 && t->parts[0].form != LP_HF_PLAIN && t->make != LP_HF_MAKE_FACTORS;
}

static bool is_vector(const struct lp_hf_tensor *t) {
    return t->keep_f32 || t->n_dims == 1;
}

// Whether float32 -> type loses nothing of what the checkpoint says in `source`.
static bool is_wider(lp_type type, lp_type source) {
    return type == LP_TYPE_F32 || type == source;
}

static lp_type choose(struct lp_convert *c, const struct lp_hf_tensor *t) {
    struct lp_convert_result *r = &c->result;
    if (is_vector(t)) return LP_TYPE_F32;
    if (c->options.keep) {
        r->n_kept += !is_float(t->source_type) || t->has_factors;
        // FP8, the one form that no type of a file holds
        r->n_rounded += t->parts[0].form == LP_HF_FP8 && t->source_type == LP_TYPE_BF16;
        return t->source_type;
    }
    lp_type type = lp_quant_fallback(c->options.type, t->ne[0]);
    if (type != c->options.type) {
        r->n_exchanged++;
        r->exchange = type;
    }
    r->n_rounded += is_quantised(t) ? type != LP_TYPE_F32 : !is_wider(type, t->source_type);
    return type;
}

// As it is in the plan, factors and all?
static bool is_packed(const struct lp_convert *c, const struct lp_hf_tensor *t, lp_type type) {
    return c->options.keep ||
           (type == t->source_type && !t->has_factors && !is_quantised(t) && !is_vector(t));
}

static uint32_t file_type(const struct lp_convert *c) {
    static const struct {
        lp_type type;
        uint32_t number;
    } numbers[] = {{LP_TYPE_F32, 0},     {LP_TYPE_F16, 1},   {LP_TYPE_Q4_0, 2},
                   {LP_TYPE_Q8_0, 7},    {LP_TYPE_Q5_0, 8},  {LP_TYPE_Q4_K, 14},
                   {LP_TYPE_Q5_K, 16},   {LP_TYPE_Q6_K, 18}, {LP_TYPE_IQ4_NL, 25},
                   {LP_TYPE_IQ4_XS, 30}, {LP_TYPE_BF16, 32}, {LP_TYPE_NVFP4, 39}};
    uint64_t n_values[LP_TYPE_COUNT] = {0};
    lp_type most = LP_TYPE_F32;
    for (uint64_t i = 0; i < c->plan.n_tensors; i++) {
        const struct lp_hf_tensor *t = &c->plan.tensors[i];
        if (!is_vector(t)) n_values[c->types[i]] += (uint64_t)lp_hf_n_rows(t) * t->ne[0];
    }
    for (uint32_t type = 0; type < LP_TYPE_COUNT; type++)
        if (n_values[type] > n_values[most]) most = (lp_type)type;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].type == most) return numbers[i].number;
    return 0;
}

// ---- the header

static lp_status describe(struct lp_convert *c, struct lp_err *err) {
    struct lp_gguf_writer *w = c->plan.writer;
    lp_status status = LP_OK;
    for (uint64_t i = 0; i < c->plan.n_tensors && !status; i++) {
        const struct lp_hf_tensor *t = &c->plan.tensors[i];
        c->types[i] = choose(c, t);
        c->written[i] = t->make != LP_HF_MAKE_FACTORS || c->options.keep;
        c->place[i] = lp_gguf_writer_n_tensors(w);
        if (c->written[i])
            status =
                lp_gguf_writer_add(w, lp_str_from(t->name), c->types[i], t->n_dims, t->ne, err);
    }
    if (status) return status;
    if (c->options.name) lp_gguf_writer_str(w, "general.name", lp_str_from(c->options.name));
    lp_gguf_writer_u32(w, "general.file_type", file_type(c));
    lp_gguf_writer_u32(w, "general.quantization_version", 2);
    status = lp_gguf_writer_finish(w, err);
    c->result.n_tensors = lp_gguf_writer_n_tensors(w);
    if (!status) c->result.n_bytes = lp_gguf_writer_total(w);
    return status;
}

lp_status lp_convert_open(struct lp_convert **out, const struct lp_convert_options *options,
                          struct lp_err *err) {
    const struct lp_hf_plan_options how = {.for_file = true, .without_mtp = options->without_mtp};
    const struct lp_type_info *info = options->keep ? NULL : lp_type_info(options->type);
    *out = NULL;
    if (!options->keep && (!info || !info->quantize || !info->is_weight || info->in_memory_only))
        return lp_err_set(err, LP_STATUS_INVALID, "a conversion cannot write %s, only %s",
                          info ? info->name : "this type", lp_quant_type_list());
    struct lp_convert *c = lp_alloc(1, sizeof *c);
    if (!c) return lp_err_memory(err, sizeof *c, "a conversion");
    c->options = *options;
    c->n_threads = lp_hf_n_threads(options->n_threads);
    lp_status status = lp_hf_plan_make(&c->plan, options->folder, &how, err);
    size_t n = (size_t)c->plan.n_tensors;
    if (!status) {
        c->types = lp_alloc(n, sizeof *c->types);
        c->written = lp_alloc(n, sizeof *c->written);
        c->place = lp_alloc(n, sizeof *c->place);
        status = c->types && c->written && c->place
                     ? describe(c, err)
                     : lp_err_memory(err, n * sizeof *c->place, "a conversion");
    }
    if (status)
        lp_convert_close(c);
    else
        *out = c;
    return status;
}

void lp_convert_close(struct lp_convert *c) {
    if (!c) return;
    for (int i = 0; c->buffers && i < c->n_threads; i++) {
        lp_free(c->buffers[i].values);
        lp_free(c->buffers[i].bytes);
    }
    lp_free(c->buffers);
    lp_new_file_close(c->file);
    lp_free(c->types);
    lp_free(c->written);
    lp_free(c->place);
    lp_hf_plan_release(&c->plan);
    lp_free(c);
}

const struct lp_hf_plan *lp_convert_plan(const struct lp_convert *c) {
    return &c->plan;
}

// ---- pieces

// Quantises; a value that the type cannot hold (F16: beyond 65504) is no silent infinity.
static lp_status quantise(const struct lp_convert *c, const struct lp_hf_piece *piece,
                          const float *values, uint8_t *bytes, struct lp_err *err) {
    const struct lp_hf_tensor *t = &c->plan.tensors[piece->tensor];
    lp_type type = c->types[piece->tensor];
    int64_t n_in = (int64_t)t->ne[0], bad;
    const struct lp_type_info *info = lp_type_info(type);
    lp_status status = lp_finite_check_rows(lp_str_from(t->name), values, (uint64_t)piece->first,
                                            (uint64_t)piece->n, t->ne[0], err);
    if (status) return status;
    lp_quantize_rows(type, values, bytes, piece->n, n_in, NULL);
    bad = lp_type_find_nonfinite(type, bytes, (size_t)(piece->n * n_in));
    if (bad < 0) return LP_OK;
    int64_t row = piece->first + bad * info->block_values / n_in;
    return lp_err_set(err, LP_STATUS_NUMERIC,
                      "tensor %s has a value in row %lld that is too large for %s; try --outtype "
                      "%s, which takes all that the checkpoint may hold",
                      t->name, (long long)row, info->name, type == LP_TYPE_BF16 ? "f32" : "bf16");
}

static lp_status make_bytes(const struct lp_convert *c, const struct buffers *b,
                            const struct lp_hf_piece *piece, struct lp_err *err) {
    const struct lp_hf_tensor *t = &c->plan.tensors[piece->tensor];
    lp_type type = c->types[piece->tensor];
    lp_status status;
    if (is_packed(c, t, type)) {
        status = lp_hf_tensor_pack(&c->plan, t, piece->first, piece->n, b->bytes, err);
        return status ? status
                      : lp_finite_check_stored(lp_str_from(t->name), type, b->bytes,
                                               (uint64_t)piece->first, (uint64_t)piece->n, t->ne[0],
                                               err);
    }
    status = lp_hf_tensor_rows(&c->plan, t, piece->first, piece->n, true, b->values, err);
    return status ? status : quantise(c, piece, b->values, b->bytes, err);
}

static lp_status write_piece(void *data, int worker, const struct lp_hf_piece *piece,
                             struct lp_err *err) {
    struct lp_convert *c = data;
    const struct lp_gguf_writer *w = c->plan.writer;
    const struct lp_hf_tensor *t = &c->plan.tensors[piece->tensor];
    uint64_t place = c->place[piece->tensor], row_bytes = 0;
    lp_type_row_bytes(c->types[piece->tensor], t->ne[0], &row_bytes);
    uint64_t offset = lp_gguf_writer_offset(w, place) + (uint64_t)piece->first * row_bytes;
    uint64_t n = (uint64_t)piece->n * row_bytes, end;
    struct buffers *b = &c->buffers[worker];
    lp_status status = make_bytes(c, b, piece, err);
    if (status) return status;
    if (piece->is_last) { // and the padding behind the tensor
        end = place + 1 < c->result.n_tensors ? lp_gguf_writer_offset(w, place + 1)
                                              : lp_gguf_writer_total(w);
        memset(b->bytes + n, 0, (size_t)(end - offset - n));
        n = end - offset;
    }
    status = lp_new_file_write(c->file, offset, b->bytes, n, err);
    if (piece->is_last || piece->first / piece->n % FORGET_PIECES == FORGET_PIECES - 1)
        lp_hf_tensor_forget(t);
    uint64_t done = atomic_fetch_add(&c->done_bytes, n) + n;
    if (worker == 0) lp_progress_update(&c->bar, done);
    return status;
}

static lp_status make_buffers(struct lp_convert *c, uint64_t max_values, struct lp_err *err) {
    c->buffers = lp_alloc((size_t)c->n_threads, sizeof *c->buffers);
    for (int i = 0; c->buffers && i < c->n_threads; i++) {
        struct buffers *b = &c->buffers[i];
        // No type has more than 4 bytes for a value, but short rows have whole blocks.
        b->values = lp_alloc_aligned((size_t)max_values, sizeof *b->values);
        b->bytes = lp_alloc_aligned((size_t)max_values * 4 + MAX_PADDING, 1);
        if (!b->values || !b->bytes)
            return lp_err_memory(err, (size_t)max_values * 8, "the buffers of a thread");
    }
    return c->buffers ? LP_OK : lp_err_memory(err, 0, "buffers");
}

// ---- the file

static lp_status open_file(struct lp_convert *c, struct lp_err *err) {
    struct lp_folder_files inputs;
    struct lp_str header = lp_gguf_writer_header(c->plan.writer);
    lp_status status = lp_folder_files_list(&inputs, c->options.folder, err);
    struct lp_new_file_options options = {.path = c->options.out,
                                          .n_bytes = c->result.n_bytes,
                                          .inputs = (const char *const *)inputs.paths,
                                          .n_inputs = (uint32_t)inputs.n,
                                          .overwrite = c->options.overwrite};
    if (!status) status = lp_new_file_open(&c->file, &options, NULL, err);
    if (!status) status = lp_new_file_write(c->file, 0, header.data, header.len, err);
    lp_folder_files_release(&inputs);
    return status;
}

lp_status lp_convert_run(struct lp_convert *c, struct lp_convert_result *result,
                         struct lp_err *err) {
    struct lp_hf_work work = {.fn = write_piece, .data = c, .n_threads = c->n_threads};
    struct lp_hf_piece *pieces = NULL;
    uint64_t n, max_values, start = lp_clock_ns();
    lp_status status = lp_hf_pieces_make(&pieces, &n, &max_values, &c->plan, c->written, err);
    if (!status) status = make_buffers(c, max_values, err);
    if (!status) status = open_file(c, err);
    lp_progress_init(&c->bar, "converting", c->result.n_bytes);
    if (!status) status = lp_hf_pieces_run(&work, pieces, n, err);
    if (!status) status = lp_new_file_finish(c->file, err);
    lp_progress_finish(&c->bar);
    lp_free(pieces);
    c->result.seconds = (double)(lp_clock_ns() - start) * 1e-9;
    *result = c->result;
    return status;
}
