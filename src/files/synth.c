#include "files/synth.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/grow.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/workers.h"
#include "files/new_file.h"
#include "files/synth_config.h"
#include "files/synth_models.h"
#include "files/synth_types.h"
#include "quant/random_blocks.h"

#define PIECE_BYTES ((uint64_t)4 << 20) // of one write
#define POOL_VALUES ((uint64_t)1 << 20) // random values of one type and width
#define ALIGNMENT 32                    // of tensors: gguf_write.h's, which no config changes

struct pool { // of a float type: normal values
    lp_type type;
    uint64_t n_in, n_bytes;
    uint8_t *blocks;
};

struct tensor {
    const struct lp_expected *expected;
    lp_type type;
    uint64_t n_bytes, offset;
    bool hole;
    size_t pool; // of a matrix
};

struct piece { // of whole blocks
    size_t tensor;
    uint64_t first, n_bytes;
};

struct job {
    const struct lp_synth_options *options;
    struct lp_synth_types types;
    struct lp_gguf_writer *writer;
    struct tensor *tensors;
    size_t n_tensors;
    struct pool *pools;
    size_t n_pools, pools_capacity;
    struct lp_new_file *file;
    struct lp_progress bar;
    _Atomic uint64_t done_bytes;
    atomic_bool failed;
    pthread_mutex_t lock; // of status, err, bar and next
    struct piece next;    // where the next piece to be written begins
    lp_status status;     // of the first failure
    struct lp_err *err;
};

// ---- what is to be written

// The pool of a type and width, which is made where there is none yet.
static lp_status find_pool(struct job *job, struct tensor *t, struct lp_err *err) {
    const struct lp_type_info *info = lp_type_info((uint32_t)t->type);
    uint64_t n_in = t->expected->ne[0];
    for (t->pool = 0; t->pool < job->n_pools; t->pool++)
        if (job->pools[t->pool].type == t->type && job->pools[t->pool].n_in == n_in) return LP_OK;
    struct pool pool = {.type = t->type, .n_in = n_in};
    pool.n_bytes = POOL_VALUES * info->block_bytes;
    struct lp_rng rng;
    lp_rng_init(&rng, job->options->seed ^ (n_in << 8) ^ (uint64_t)t->type);
    pool.blocks = lp_alloc(pool.n_bytes, 1);
    if (!pool.blocks || !LP_GROW(job->pools, job->pools_capacity, job->n_pools + 1)) {
        lp_free(pool.blocks);
        return lp_err_memory(err, pool.n_bytes, "random weights");
    }
    job->pools[job->n_pools++] = pool;
    if (lp_random_blocks(t->type, 1.0f / sqrtf((float)n_in), &rng, pool.blocks, POOL_VALUES))
        return LP_OK;
    return lp_err_set(err, LP_STATUS_INVALID, "%s is no type of a weight", info->name);
}

static lp_status plan(struct job *job, const struct lp_synth_config *c, struct lp_err *err) {
    lp_status status = LP_OK;
    if (!(job->tensors = lp_alloc(c->n_tensors, sizeof *job->tensors)))
        return lp_err_memory(err, c->n_tensors * sizeof *job->tensors, "the tensors");
    job->n_tensors = c->n_tensors;
    for (size_t i = 0; i < c->n_tensors && !status; i++) {
        const struct lp_expected *e = &c->tensors[i];
        struct tensor *t = &job->tensors[i];
        t->expected = e;
        t->hole = job->options->hollow || (job->options->sparse && lp_synth_is_experts(e));
        t->type = e->vector ? LP_TYPE_F32 : lp_synth_type(&job->types, e);
        status =
            lp_gguf_writer_add(job->writer, lp_str_from(e->name), t->type, e->n_dims, e->ne, err);
    }
    if (!status) status = lp_gguf_writer_finish(job->writer, err);
    for (size_t i = 0; i < c->n_tensors && !status; i++) {
        struct tensor *t = &job->tensors[i];
        t->n_bytes = lp_gguf_writer_bytes(job->writer, i);
        t->offset = lp_gguf_writer_offset(job->writer, i);
        bool is_value = lp_type_info((uint32_t)t->type)->block_values == 1;
        if (t->hole || t->expected->vector || job->options->dry_run || !is_value) continue;
        status = find_pool(job, t, err);
    }
    return status;
}

// ---- bytes

static uint64_t mix(uint64_t a, uint64_t b) {
    struct lp_rng rng;
    lp_rng_init(&rng, a * 0x9e3779b97f4a7c15u ^ b);
    return lp_rng_u64(&rng);
}

// Turns the sign of half of the values, at random, so that no two matrices have anything in common.
static void turn_signs(uint64_t random, uint8_t *values, uint64_t n, uint64_t value_bytes) {
    for (uint64_t i = 0; i < n; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX
        values[(i + 1) * value_bytes - 1] ^= (uint8_t)(random >> 56) & 0x80;
    }
}

// Normal values are slow to make: the pool again and again, from a place and with signs that the
// piece's number decides.
static void fill_values(const struct pool *pool, uint64_t random, uint64_t value_bytes,
                        uint8_t *out, uint64_t n) {
    uint64_t at = random % (pool->n_bytes / value_bytes) * value_bytes;
    for (uint64_t done = 0; done < n; at = 0) {
        uint64_t some = pool->n_bytes - at < n - done ? pool->n_bytes - at : n - done;
        memcpy(out + done, pool->blocks + at, some);
        done += some;
    }
    turn_signs(random, out, n / value_bytes, value_bytes);
}

static void fill_matrix(const struct job *job, const struct tensor *t, uint64_t first, uint8_t *out,
                        uint64_t n) {
    const struct lp_type_info *info = lp_type_info((uint32_t)t->type);
    uint64_t random = mix(job->options->seed + (uint64_t)(t - job->tensors), first);
    struct lp_rng rng;
    if (info->block_values == 1) {
        fill_values(&job->pools[t->pool], random, info->block_bytes, out, n);
        return;
    }
    lp_rng_init(&rng, random);
    lp_random_blocks(t->type, 1.0f / sqrtf((float)t->expected->ne[0]), &rng, out,
                     n / info->block_bytes * info->block_values);
}

// Norms lie around 1, biases around 0, the router and the indexer's projection as matrices do.
static void fill_floats(const struct job *job, const struct tensor *t, uint64_t first, uint8_t *out,
                        uint64_t n) {
    const struct lp_expected *e = t->expected;
    bool is_bias = strstr(e->name, ".bias") != NULL, is_matrix = e->n_dims > 1;
    float mean = is_bias || is_matrix ? 0.0f : 1.0f;
    float std = is_matrix ? 1.0f / sqrtf((float)e->ne[0]) : is_bias ? 0.02f : 0.1f;
    struct lp_rng rng;
    lp_rng_init(&rng, mix(job->options->seed + (uint64_t)(t - job->tensors), ~first));
    for (uint64_t i = 0; i < n; i += sizeof(float)) {
        float value = mean + std * lp_rng_normal(&rng);
        memcpy(out + i, &value, sizeof value);
    }
}

static void fail(struct job *job, const struct lp_err *err) {
    pthread_mutex_lock(&job->lock);
    if (!atomic_exchange(&job->failed, true))
        job->status = lp_err_set(job->err, err->status, "%s", err->text);
    pthread_mutex_unlock(&job->lock);
}

static void count(struct job *job, uint64_t n) {
    uint64_t done = atomic_fetch_add(&job->done_bytes, n) + n;
    pthread_mutex_lock(&job->lock);
    lp_progress_update(&job->bar, done);
    pthread_mutex_unlock(&job->lock);
}

// The next piece that is in no hole, in the order of the file; false behind the last.
static bool take(struct job *job, struct piece *out) {
    struct piece *next = &job->next;
    pthread_mutex_lock(&job->lock);
    while (next->tensor < job->n_tensors &&
           (job->tensors[next->tensor].hole || next->first == job->tensors[next->tensor].n_bytes))
        *next = (struct piece){.tensor = next->tensor + 1};
    bool more = next->tensor < job->n_tensors;
    if (more) {
        const struct tensor *t = &job->tensors[next->tensor];
        uint64_t block = lp_type_info((uint32_t)t->type)->block_bytes;
        uint64_t most = PIECE_BYTES / block * block, left = t->n_bytes - next->first;
        *out = (struct piece){next->tensor, next->first, left < most ? left : most};
        next->first += out->n_bytes;
    }
    pthread_mutex_unlock(&job->lock);
    return more;
}

static void write_pieces(void *user, int worker, int n_workers) {
    struct job *job = user;
    struct lp_err err;
    uint8_t *buffer = lp_alloc_aligned(PIECE_BYTES, 1);
    (void)worker, (void)n_workers;
    if (!buffer) {
        lp_err_memory(&err, PIECE_BYTES, "a buffer");
        fail(job, &err);
        return;
    }
    for (struct piece p; !job->failed && take(job, &p);) {
        const struct tensor *t = &job->tensors[p.tensor];
        (t->expected->vector ? fill_floats : fill_matrix)(job, t, p.first, buffer, p.n_bytes);
        if (lp_new_file_write(job->file, t->offset + p.first, buffer, p.n_bytes, &err))
            fail(job, &err);
        else
            count(job, p.n_bytes);
    }
    lp_free(buffer);
}

// ---- the file

// The header, and what stands behind the last tensor: the padding, or the last byte of a hole, so
// that the file has its length. (Padding between tensors need not be written: it is zero.)
static lp_status write_ends(struct job *job, struct lp_err *err) {
    static const uint8_t zeros[ALIGNMENT];
    struct lp_str header = lp_gguf_writer_header(job->writer);
    const struct tensor *last = &job->tensors[job->n_tensors - 1];
    uint64_t end = last->offset + last->n_bytes, padding = lp_gguf_writer_total(job->writer) - end;
    lp_status status = lp_new_file_write(job->file, 0, header.data, header.len, err);
    if (!status && padding) status = lp_new_file_write(job->file, end, zeros, padding, err);
    if (!status && !padding && last->hole)
        status = lp_new_file_write(job->file, end - 1, zeros, 1, err);
    return status;
}

static lp_status write_file(struct job *job, uint64_t disk_bytes, struct lp_err *err) {
    const struct lp_synth_options *o = job->options;
    struct lp_new_file_options options = {
        .path = o->path,
        .inputs = &o->model,
        .n_inputs = lp_synth_model_find(o->model) ? 0 : 1,
        .n_bytes = lp_gguf_writer_total(job->writer),
        .disk_bytes = disk_bytes,
        .overwrite = o->overwrite,
    };
    struct lp_workers *workers = NULL;
    lp_status status = lp_new_file_open(&job->file, &options, NULL, err);
    if (!status) status = lp_workers_new(&workers, o->n_threads, err);
    if (!status) status = write_ends(job, err);
    if (!status) {
        lp_progress_init(&job->bar, "writing", disk_bytes);
        lp_workers_run(workers, write_pieces, job);
        lp_progress_finish(&job->bar);
        status = job->status;
    }
    lp_workers_free(workers);
    if (!status) status = lp_new_file_finish(job->file, err);
    lp_new_file_close(job->file);
    return status;
}

static void release(struct job *job) {
    for (size_t i = 0; i < job->n_pools; i++) lp_free(job->pools[i].blocks);
    lp_free(job->pools);
    lp_free(job->tensors);
    lp_gguf_writer_free(job->writer);
    pthread_mutex_destroy(&job->lock);
}

static void add_up(const struct job *job, struct lp_synth_result *out) {
    out->n_tensors = job->n_tensors;
    out->file_bytes = lp_gguf_writer_total(job->writer);
    out->written_bytes = out->file_bytes;
    for (size_t i = 0; i < job->n_tensors; i++) {
        const uint64_t *ne = job->tensors[i].expected->ne;
        out->n_weights += ne[0] * ne[1] * ne[2];
        if (job->tensors[i].hole) out->written_bytes -= job->tensors[i].n_bytes;
    }
}

lp_status lp_synth(const struct lp_synth_options *options, struct lp_synth_result *out,
                   struct lp_err *err) {
    struct lp_synth_config config;
    struct job job = {.options = options, .err = err};
    uint64_t start = lp_clock_ns();
    memset(out, 0, sizeof *out);
    pthread_mutex_init(&job.lock, NULL);
    lp_status status = lp_synth_config(&config, options, err);
    if (!status) status = lp_synth_types(&job.types, options, &config.h, err);
    if (!status) status = lp_synth_writer(&job.writer, &config, options->seed, err);
    if (!status && job.types.file_type)
        lp_gguf_writer_u32(job.writer, "general.file_type", job.types.file_type);
    if (!status) status = plan(&job, &config, err);
    if (!status) add_up(&job, out);
    if (!status && !options->dry_run) status = write_file(&job, out->written_bytes, err);
    out->seconds = (double)(lp_clock_ns() - start) * 1e-9;
    release(&job);
    lp_synth_config_release(&config);
    return status;
}
