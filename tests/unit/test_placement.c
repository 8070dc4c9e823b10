// Where the weights of a model lie, and their factors (NAME.scale): as lists of matrices, in halves
// of one matrix, one factor for all heads; and what the plan says of their bytes.
#include "assembled.h"

#include <math.h>

#include "model/cost.h"
#include "model/dummy.h"
#include "model/model.h"
#include "model/shard.h"

#define GOLDEN "tests/golden/dsa_sparse.gguf"

static struct lp_device *dev;
static struct lp_model *model;

static void load(const struct assembled *a) {
    struct lp_err err;
    assert_int_equal(lp_backend_ref.open(&dev, NULL, &err), LP_OK);
    if (lp_model_load(&model, a->gguf, dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = UINT64_MAX}, &err))
        fail_msg("%s", err.text);
    assert_int_equal(model->owned_bytes, lp_cost_float32_bytes(&model->h, &model->binding));
}

static void unload(struct assembled *a) {
    lp_model_free(model);
    lp_backend_ref.close(dev);
    disassemble(a);
}

static void factors_are_placed_with_their_matrices(void **state) {
    (void)state;
    static const float one[] = {0.5f}, two[] = {3.0f}, experts[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct assembled a;
    const struct more_tensor more[] = {{"output.scale", LP_TYPE_F32, 1, one},
                                       {"blk.2.attn_output.scale", LP_TYPE_F32, 1, two},
                                       {"blk.2.attn_k_b.scale", LP_TYPE_F32, 1, one},
                                       {"blk.3.ffn_gate_inp.scale", LP_TYPE_F32, 1, two},
                                       {"blk.3.ffn_up_exps.scale", LP_TYPE_F32, 8, experts},
                                       {NULL}};
    assemble(&a, GOLDEN, more, "blk.3.ffn_up_exps.weight");
    load(&a);
    const struct lp_layer *l = model->layers;
    assert_int_equal(model->h.n_experts, 8);
    assert_true(lp_weight_scale(&model->output, 0) == 0.5f);
    assert_true(lp_weight_scale(&model->token_embd, 0) == 1.0f);
    assert_true(lp_weight_scale(&l[2].attn_output, 0) == 3.0f);
    for (int32_t h = 0; h < model->h.n_heads; h++) {
        assert_true(lp_weight_scale(&l[2].mla.k_up, h) == 0.5f);
        assert_true(lp_weight_scale(&l[2].mla.v_up, h) == 1.0f);
    }
    assert_true(lp_weight_scale(&l[3].router, 0) == 3.0f);
    const struct lp_gguf_tensor *t =
        lp_gguf_find_tensor(a.source, lp_str_from("blk.3.ffn_up_exps.weight"));
    assert_non_null(l[3].experts.up.mats);
    for (int64_t e = 0; e < 8; e++) {
        assert_true(lp_weight_scale(&l[3].experts.up, e) == experts[e]);
        assert_true(lp_weight_scale(&l[3].experts.gate, e) == 1.0f);
        assert_ptr_equal(lp_weight_mat(&l[3].experts.up, e), lp_gguf_tensor_mat(t, (uint64_t)e));
    }
    unload(&a);
}

static void a_part_of_a_weight_begins_where_it_says(void **state) {
    (void)state;
    static const uint8_t bytes[64], *const mats[] = {bytes + 30, bytes + 10, bytes};
    static const float factors[] = {1, 2, 3};
    struct lp_weight w = {.mats = mats,
                          .mats_offset = 1,
                          .scales = factors,
                          .n_out = 5,
                          .n_mats = 3,
                          .row_bytes = 2,
                          .mat_bytes = 10};
    struct lp_weight part = lp_weight_part(&w, 1, 2, 3, 2);
    assert_ptr_equal(lp_weight_mat(&part, 0), bytes + 10 + 1 + 6);
    assert_ptr_equal(lp_weight_mat(&part, 1), bytes + 0 + 1 + 6);
    assert_true(part.n_mats == 2 && part.n_out == 2 && lp_weight_scale(&part, 1) == 3);
    w = (struct lp_weight){.data = bytes, .n_out = 2, .n_mats = 3, .row_bytes = 4, .mat_bytes = 8};
    part = lp_weight_part(&w, 2, 1, 1, 1);
    assert_ptr_equal(lp_weight_mat(&part, 0), bytes + 16 + 4);
    assert_true(lp_weight_scale(&part, 0) == 1);
}

// A NaN among the factors is a damaged file, like one among the weights.
// ---- a device with memory of its own: ref, which is not told that it could read in place

static struct lp_backend far;
static size_t far_left;
static bool far_broken;

static size_t far_memory(struct lp_device *device, size_t *total) {
    (void)device;
    *total = 1 << 30;
    return far_left;
}
static lp_status far_failed(struct lp_device *device, struct lp_err *err) {
    (void)device;
    return far_broken ? lp_err_set(err, LP_STATUS_IO, "the device broke") : LP_OK;
}
static struct lp_device *open_far(void) {
    struct lp_device *device;
    assert_int_equal(lp_backend_ref.open(&device, NULL, NULL), LP_OK);
    far = lp_backend_ref;
    far.host_memory = false;
    far.memory = far_memory;
    far.failed = far_failed;
    far_left = 1 << 30;
    far_broken = false;
    device->backend = &far;
    return device;
}

// The last of five tokens' logits.
static lp_status run_tokens(struct lp_model *m, float *logits, struct lp_err *err) {
    static const int32_t tokens[] = {5, 17, 3, 29, 11}, last[] = {4};
    struct lp_kv_layer layers[LP_MAX_LAYERS];
    struct lp_page_table pages = {0};
    struct lp_kv *kv;
    struct lp_runner *runner;
    lp_model_kv_layers(m, false, layers);
    assert_int_equal(lp_kv_new(&kv, m->dev, layers, m->h.n_layers, LP_TYPE_F32, 128, err), LP_OK);
    assert_int_equal(lp_runner_new(&runner, m, kv, 5, 128, false, err), LP_OK);
    assert_int_equal(lp_page_table_grow(&pages, kv, 5, err), LP_OK);
    struct lp_span span = {.pages = &pages, .n_rows = 5};
    struct lp_step step = {.tokens = tokens,
                           .spans = &span,
                           .n_spans = 1,
                           .n_rows = 5,
                           .logit_rows = last,
                           .n_logit_rows = 1,
                           .logits = logits};
    lp_status status = lp_runner_step(runner, &step, &(struct lp_step_settings){0}, err);
    lp_page_table_release(&pages, kv);
    lp_runner_free(runner);
    lp_kv_free(kv);
    return status;
}

static void is_inside(const struct lp_gguf *gguf, const struct lp_weight *w, bool inside) {
    bool found = false;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        const uint8_t *at = lp_gguf_tensor_mat(t, 0), *mat = lp_weight_mat(w, 0);
        found |= mat >= at && mat < at + t->n_bytes;
    }
    assert_int_equal(found, inside);
}

// Latents in two tensors and in one, experts, a tied output, grouped-query attention.
static void a_device_of_its_own_gets_copies_that_give_the_same_bits(void **state) {
    (void)state;
    static const char *const files[] = {GOLDEN, "tests/golden/ds2_lite.gguf",
                                        "tests/golden/glm47_flash.gguf", "tests/golden/qwen3.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        float *logits[2];
        for (int is_far = 0; is_far < 2; is_far++) {
            struct lp_err err;
            struct lp_gguf *gguf;
            struct lp_model *m;
            struct lp_device *device;
            if (lp_gguf_open(&gguf, files[i], &err)) fail_msg("%s", err.text);
            if (is_far)
                device = open_far();
            else
                assert_int_equal(lp_backend_ref.open(&device, NULL, NULL), LP_OK);
            if (lp_model_load(&m, gguf, device,
                              &(struct lp_load){.n_threads = 1, .check_bytes = UINT64_MAX}, &err))
                fail_msg("%s", err.text);
            assert_int_equal(m->owned_bytes, lp_cost_float32_bytes(&m->h, &m->binding));
            assert_int_equal(m->uploaded_bytes,
                             is_far ? lp_cost_mapped_bytes(&m->h, &m->binding, true) : 0);
            is_inside(gguf, &m->output, !is_far);
            is_inside(gguf, &m->layers[0].attn_output, !is_far);
            logits[is_far] = lp_alloc((size_t)m->h.n_vocab, sizeof(float));
            if (run_tokens(m, logits[is_far], &err)) fail_msg("%s", err.text);
            if (is_far)
                assert_memory_equal(logits[0], logits[1], (size_t)m->h.n_vocab * sizeof(float));
            lp_model_free(m);
            lp_backend_ref.close(device);
            lp_gguf_close(gguf);
        }
        lp_free(logits[0]), lp_free(logits[1]);
    }
}

// How far the experts' layers on the CPU are from those on the device: both multiply the same float
// weights, in another order.
static void assert_near(const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(b[i]))))
            fail_msg("logit %lld: %g, expected %g", (long long)i, (double)a[i], (double)b[i]);
}

static void experts_stay_on_the_cpu_as_the_budget_says(void **state) {
    (void)state;
    static const char *const files[] = {GOLDEN, "tests/golden/ds2_lite.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct lp_err err;
        struct lp_gguf *gguf;
        struct lp_device *cpu, *device = open_far();
        if (lp_gguf_open(&gguf, files[i], &err)) fail_msg("%s", err.text);
        assert_int_equal(lp_backend_cpu.open(&cpu, NULL, &err), LP_OK);
        float *logits[2] = {0};
        uint64_t dense = 0, of_layer = 0;
        // Nothing on the CPU, all of them, and all but those of the first layer that has any.
        for (int which = 0; which < 3; which++) {
            struct lp_load load = {.n_threads = 1,
                                   .check_bytes = UINT64_MAX,
                                   .expert_dev = which ? cpu : NULL,
                                   .weight_bytes = which == 2 ? dense + of_layer : 0};
            struct lp_model *m;
            if (lp_model_load(&m, gguf, device, &load, &err)) fail_msg("%s", err.text);
            int32_t n_moe = m->h.n_layers - m->h.n_dense + m->has_mtp;
            assert_int_equal(m->n_host_layers, which == 0 ? 0 : which == 1 ? n_moe : n_moe - 1);
            const struct lp_ffn *first = &m->layers[m->h.n_dense].experts;
            is_inside(gguf, &first->down, which == 1);
            is_inside(gguf, &m->layers[m->h.n_layers - 1].experts.down,
                      which != 0 && m->h.n_layers - m->h.n_dense > 1);
            if (which == 1) dense = m->uploaded_bytes + m->owned_bytes;
            of_layer = (first->gate.mat_bytes + first->up.mat_bytes + first->down.mat_bytes) *
                       (uint64_t)first->down.n_mats;
            float *out = lp_alloc((size_t)m->h.n_vocab, sizeof(float));
            if (run_tokens(m, out, &err)) fail_msg("%s", err.text);
            if (which == 0)
                logits[0] = out;
            else {
                assert_near(out, logits[0], m->h.n_vocab);
                lp_free(out);
            }
            lp_model_free(m);
        }
        struct lp_model *m;
        struct lp_load small = {.n_threads = 1, .expert_dev = cpu, .weight_bytes = dense - 1};
        assert_int_equal(lp_model_load(&m, gguf, device, &small, &err), LP_STATUS_MEMORY);
        assert_non_null(strstr(err.text, "raise --vram-budget"));
        lp_free(logits[0]);
        lp_backend_cpu.close(cpu);
        lp_backend_ref.close(device);
        lp_gguf_close(gguf);
    }
}

static void a_host_backend_divides_nothing(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_gguf *gguf;
    struct lp_model *m;
    struct lp_device *cpu;
    assert_int_equal(lp_backend_cpu.open(&cpu, NULL, &err), LP_OK);
    if (lp_gguf_open(&gguf, GOLDEN, &err)) fail_msg("%s", err.text);
    assert_int_equal(
        lp_model_load(&m, gguf, cpu, &(struct lp_load){.n_threads = 1, .expert_dev = cpu}, &err),
        LP_STATUS_INVALID);
    assert_int_equal(
        lp_model_load(&m, gguf, cpu, &(struct lp_load){.n_threads = 1, .dummy = true}, &err),
        LP_STATUS_INVALID);
    lp_gguf_close(gguf);
    lp_backend_cpu.close(cpu);
}

// Matrices that are not read, on a device: finite logits of random weights.
static void dummy_weights_are_random_and_finite(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_gguf *gguf;
    struct lp_model *m;
    struct lp_device *device = open_far();
    if (lp_gguf_open(&gguf, GOLDEN, &err)) fail_msg("%s", err.text);
    if (lp_model_load(&m, gguf, device, &(struct lp_load){.n_threads = 1, .dummy = true}, &err))
        fail_msg("%s", err.text);
    assert_int_equal(m->uploaded_bytes, lp_cost_mapped_bytes(&m->h, &m->binding, true));
    const uint8_t *mat = lp_weight_mat(&m->output, 0);
    assert_memory_not_equal(mat, lp_gguf_tensor_mat(m->binding.model.tensor[LP_SLOT_OUTPUT], 0),
                            m->output.row_bytes);
    float *logits = lp_alloc((size_t)m->h.n_vocab, sizeof(float)), largest = 0;
    if (run_tokens(m, logits, &err)) fail_msg("%s", err.text);
    for (int64_t i = 0; i < m->h.n_vocab; i++) largest = fmaxf(largest, fabsf(logits[i]));
    assert_true(largest > 0.01f && largest < 100.0f);
    lp_free(logits);
    lp_model_free(m);
    lp_backend_ref.close(device);
    lp_gguf_close(gguf);
}

// What a rank has of a tensor is what the whole has there. The pieces that are repeated: 4 Mi values in rows of 64, so
// that matrices of 30,000 rows begin anywhere in them.
static void a_part_of_a_dummy_is_that_of_the_whole(void **state) {
    (void)state;
    enum { N_MATS = 3, N_ROWS = 30000, N_IN = 64, N_PARTS = 4 };
    static const lp_type types[] = {LP_TYPE_F32, LP_TYPE_Q8_0};
    static const struct part {
        int64_t mat, n_mats, row, n_rows, column, n_columns;
    } parts[N_PARTS] = {{1, 2, 0, N_ROWS, 0, N_IN},     // matrices
                        {0, N_MATS, 7001, 13, 0, N_IN}, // rows of each
                        {0, N_MATS, 0, N_ROWS, 32, 32}, // columns
                        {2, 1, 11000, 9000, 32, 32}};
    struct lp_err err;
    struct lp_device *device = open_far();
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const size_t block = lp_type_info(types[t])->block_bytes,
                     step = lp_type_info(types[t])->block_values, row_bytes = N_IN / step * block;
        const struct lp_weight whole = {.type = types[t],
                                        .n_in = N_IN,
                                        .n_out = N_ROWS,
                                        .n_mats = N_MATS,
                                        .row_bytes = row_bytes,
                                        .mat_bytes = row_bytes * N_ROWS};
        uint8_t *all = malloc(whole.mat_bytes * N_MATS), *some = malloc(whole.mat_bytes * N_MATS);
        struct lp_dummy_place place = lp_dummy_whole(&whole);
        if (lp_dummy_fill(device, &whole, &place, all, &err)) fail_msg("%s", err.text);
        assert_memory_not_equal(all, all + whole.mat_bytes, row_bytes);
        for (int i = 0; i < N_PARTS; i++) {
            const struct part *p = &parts[i];
            const size_t bytes = (size_t)p->n_columns / step * block,
                         skip = (size_t)p->column / step * block;
            struct lp_weight w = whole;
            w.n_in = p->n_columns, w.n_out = p->n_rows, w.n_mats = p->n_mats;
            w.row_bytes = bytes, w.mat_bytes = bytes * (size_t)p->n_rows;
            place.first_mat = p->mat, place.first_row = p->row, place.first_column = p->column;
            if (lp_dummy_fill(device, &w, &place, some, &err)) fail_msg("%s", err.text);
            for (int64_t m = 0; m < p->n_mats; m++)
                for (int64_t r = 0; r < p->n_rows; r++)
                    if (memcmp(some + ((size_t)(m * p->n_rows + r)) * bytes,
                               all + (size_t)((p->mat + m) * N_ROWS + p->row + r) * row_bytes +
                                   skip,
                               bytes) != 0)
                        fail_msg("part %d, matrix %lld, row %lld", i, (long long)m, (long long)r);
        }
        free(all);
        free(some);
    }
    lp_backend_ref.close(device);
}

// One of several ranks, as it would load without the others.
static struct lp_model *dummy_of_rank(const struct lp_gguf *gguf, struct lp_device *device,
                                      int32_t rank, int32_t n_ranks) {
    struct lp_err err = {0};
    struct lp_model *m = lp_alloc(1, sizeof *m);
    const struct lp_load load = {.dummy = true};
    m->gguf = gguf, m->dev = device, m->dummy = true;
    lp_status status = lp_hparams_read(&m->h, gguf, &err);
    if (!status)
        status = lp_binding_make(&m->binding, &m->h, gguf, device->backend->supports, device, &err);
    m->layers = lp_alloc((size_t)m->h.n_layers + m->binding.has_mtp, sizeof *m->layers);
    if (!status)
        status = lp_shard_divide(m, rank, n_ranks, 1, LP_SHARD_EXPERTS_SPLIT,
                                 LP_ATTENTION_PARALLEL_HEADS, &err);
    if (!status) status = lp_model_place(m, &load, &err);
    if (status) fail_msg("%s", err.text);
    return m;
}

static void assert_cut(const struct lp_weight *part, const struct lp_weight *whole,
                       enum lp_cut_kind kind, int64_t first, int64_t n) {
    const struct lp_cut cut = {kind, {first, n}};
    const struct lp_weight want = lp_weight_cut(whole, cut);
    uint64_t bytes = 0;
    if (n == 0 || part->n_in == 0) return;
    assert_true(part->n_in == want.n_in && part->n_out == want.n_out &&
                part->n_mats == want.n_mats);
    lp_type_row_bytes((uint32_t)part->type, (uint64_t)part->n_in, &bytes);
    for (int64_t i = 0; i < part->n_mats; i++)
        for (int64_t r = 0; r < part->n_out; r++)
            assert_memory_equal(lp_weight_mat(part, i) + (size_t)r * part->row_bytes,
                                lp_weight_mat(&want, i) + (size_t)r * want.row_bytes, bytes);
}

static void assert_ffn_cut(const struct lp_ffn *part, const struct lp_ffn *whole,
                           struct lp_range width) {
    assert_cut(&part->gate, &whole->gate, LP_CUT_ROWS, width.first, width.n);
    assert_cut(&part->up, &whole->up, LP_CUT_ROWS, width.first, width.n);
    assert_cut(&part->down, &whole->down, LP_CUT_COLUMNS, width.first, width.n);
}

// Whatever is cut, and where: the random weights of ranks are those of one process.
static void ranks_have_the_dummy_of_one_process(void **state) {
    (void)state;
    static const char *const files[] = {GOLDEN, "tests/golden/ds2_lite.gguf",
                                        "tests/golden/glm47_flash.gguf"};
    enum { N_RANKS = 3 };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct lp_err err;
        struct lp_gguf *gguf;
        struct lp_device *device = open_far();
        if (lp_gguf_open(&gguf, files[f], &err)) fail_msg("%s", err.text);
        struct lp_model *one = dummy_of_rank(gguf, device, 0, 1);
        for (int32_t rank = 0; rank < N_RANKS; rank++) {
            struct lp_model *m = dummy_of_rank(gguf, device, rank, N_RANKS);
            const struct lp_range vocab = lp_shard_vocab(m);
            assert_cut(&m->output, &one->output, LP_CUT_ROWS, vocab.first, vocab.n);
            for (int32_t l = 0; l < m->h.n_layers; l++) {
                const struct lp_layer *part = &m->layers[l], *whole = &one->layers[l];
                const struct lp_gguf_tensor *const *t = m->binding.blocks[l].tensor;
                const struct lp_range heads = lp_shard_heads(m, l);
                const int64_t width = lp_shard_head_units(&m->h).width;
                assert_cut(&part->attn_output, &whole->attn_output, LP_CUT_COLUMNS,
                           heads.first * width, heads.n * width);
                assert_cut(&part->mla.k_up, &whole->mla.k_up, LP_CUT_MATRICES, heads.first,
                           heads.n);
                assert_cut(&part->mla.v_up, &whole->mla.v_up, LP_CUT_MATRICES, heads.first,
                           heads.n);
                if (!part->is_moe) {
                    const struct lp_gguf_tensor *down = t[LP_SLOT_FFN_DOWN];
                    assert_ffn_cut(&part->dense, &whole->dense,
                                   lp_shard_width(m, (int64_t)down->ne[0], down));
                    continue;
                }
                assert_ffn_cut(&part->experts, &whole->experts,
                               lp_shard_width(m, m->h.expert_ff, t[LP_SLOT_DOWN_EXPS]));
                if (part->has_shared)
                    assert_ffn_cut(&part->shared, &whole->shared,
                                   lp_shard_shared_width(m, t[LP_SLOT_DOWN_SHEXP]));
            }
            lp_model_free(m);
        }
        lp_model_free(one);
        lp_backend_ref.close(device);
        lp_gguf_close(gguf);
    }
}

static void weights_that_do_not_fit_are_refused_with_both_sizes(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_gguf *gguf;
    struct lp_model *m;
    struct lp_device *device = open_far();
    far_left = 1000000;
    if (lp_gguf_open(&gguf, GOLDEN, &err)) fail_msg("%s", err.text);
    assert_int_equal(lp_model_load(&m, gguf, device,
                                   &(struct lp_load){.n_threads = 1, .check_bytes = UINT64_MAX},
                                   &err),
                     LP_STATUS_MEMORY);
    assert_non_null(strstr(err.text, "the weights take "));
    assert_non_null(strstr(err.text, "and 0.00 GB of its 1.07 GB are free"));
    lp_backend_ref.close(device);
    lp_gguf_close(gguf);
}

static void a_device_that_breaks_fails_the_step(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_gguf *gguf;
    struct lp_model *m;
    struct lp_device *device = open_far();
    if (lp_gguf_open(&gguf, GOLDEN, &err)) fail_msg("%s", err.text);
    if (lp_model_load(&m, gguf, device,
                      &(struct lp_load){.n_threads = 1, .check_bytes = UINT64_MAX}, &err))
        fail_msg("%s", err.text);
    float *logits = lp_alloc((size_t)m->h.n_vocab, sizeof(float));
    far_broken = true;
    assert_int_equal(run_tokens(m, logits, &err), LP_STATUS_IO);
    assert_string_equal(err.text, "the device broke");
    lp_free(logits);
    lp_model_free(m);
    lp_backend_ref.close(device);
    lp_gguf_close(gguf);
}

static void factors_are_checked_for_nan(void **state) {
    (void)state;
    static const float bad[] = {NAN};
    struct assembled a;
    struct lp_err err;
    assemble(&a, GOLDEN,
             (const struct more_tensor[]){{"blk.2.attn_output.scale", LP_TYPE_F32, 1, bad}, {NULL}},
             "blk.3.ffn_up_exps.weight");
    assert_int_equal(lp_backend_ref.open(&dev, NULL, &err), LP_OK);
    assert_int_equal(lp_model_load(&model, a.gguf, dev,
                                   &(struct lp_load){.n_threads = 1, .check_bytes = UINT64_MAX},
                                   &err),
                     LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "tensor blk.2.attn_output.scale holds NaN or infinity"));
    lp_backend_ref.close(dev);
    disassemble(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_placed_with_their_matrices),
        cmocka_unit_test(a_part_of_a_weight_begins_where_it_says),
        cmocka_unit_test(factors_are_checked_for_nan),
        cmocka_unit_test(a_device_of_its_own_gets_copies_that_give_the_same_bits),
        cmocka_unit_test(experts_stay_on_the_cpu_as_the_budget_says),
        cmocka_unit_test(a_host_backend_divides_nothing),
        cmocka_unit_test(dummy_weights_are_random_and_finite),
        cmocka_unit_test(a_part_of_a_dummy_is_that_of_the_whole),
        cmocka_unit_test(ranks_have_the_dummy_of_one_process),
        cmocka_unit_test(weights_that_do_not_fit_are_refused_with_both_sizes),
        cmocka_unit_test(a_device_that_breaks_fails_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
