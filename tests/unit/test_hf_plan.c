// Plans of folders that transformers saved (tests/data/hf): order and form of the tensors, rows in
// any portions, memory that runs out. That the values are right is shown by tests/e2e/convert.py.
#include "lp_test.h"

#include "base/alloc.h"
#include "hf/hf_pieces.h"

#define FOLDER(name) "tests/data/hf/" name

static struct lp_err err;

static void make(struct lp_hf_plan *plan, const char *path, bool fused) {
    struct lp_hf_plan_options options = {.fused = fused, .for_file = !fused};
    lp_status status = lp_hf_plan_make(plan, path, &options, &err);
    if (status) print_error("%s\n", err.text);
    assert_int_equal(status, LP_OK);
}

static const struct lp_hf_tensor *find(const struct lp_hf_plan *plan, const char *name) {
    for (uint64_t i = 0; i < plan->n_tensors; i++)
        if (strcmp(plan->tensors[i].name, name) == 0) return &plan->tensors[i];
    return NULL;
}

static void the_embedding_is_first_and_the_output_last(void **state) {
    (void)state;
    struct lp_hf_plan plan;
    make(&plan, FOLDER("deepseek_v3"), false);
    assert_string_equal(plan.tensors[0].name, "token_embd.weight");
    assert_string_equal(plan.tensors[1].name, "blk.0.attn_norm.weight");
    assert_string_equal(plan.tensors[plan.n_tensors - 2].name, "output_norm.weight");
    assert_string_equal(plan.tensors[plan.n_tensors - 1].name, "output.weight");
    assert_int_equal(plan.n_ignored, 0);
    lp_hf_plan_release(&plan);
}

static void a_file_has_the_halves_of_kv_b_and_memory_the_whole(void **state) {
    (void)state;
    struct lp_hf_plan plan;
    make(&plan, FOLDER("deepseek_v3"), false);
    const struct lp_hf_tensor *k_b = find(&plan, "blk.1.attn_k_b.weight");
    const struct lp_hf_tensor *v_b = find(&plan, "blk.1.attn_v_b.weight");
    assert_non_null(k_b);
    assert_non_null(v_b);
    assert_null(find(&plan, "blk.1.attn_kv_b.weight"));
    // kv_lora_rank 32, nope 16, v 32, 2 heads
    assert_true(k_b->ne[0] == 16 && k_b->ne[1] == 32 && k_b->ne[2] == 2);
    assert_true(v_b->ne[0] == 32 && v_b->ne[1] == 32 && v_b->ne[2] == 2);
    lp_hf_plan_release(&plan);
    make(&plan, FOLDER("deepseek_v3"), true);
    assert_null(find(&plan, "blk.1.attn_k_b.weight"));
    const struct lp_hf_tensor *kv_b = find(&plan, "blk.1.attn_kv_b.weight");
    assert_non_null(kv_b);
    assert_true(kv_b->ne[0] == 32 && kv_b->ne[1] == 2 * (16 + 32) && kv_b->make == LP_HF_MAKE_COPY);
    lp_hf_plan_release(&plan);
}

static void what_decides_stays_float32(void **state) {
    (void)state;
    struct lp_hf_plan plan;
    make(&plan, FOLDER("glm_moe_dsa"), false);
    static const char *const names[] = {"blk.1.ffn_gate_inp.weight", "blk.1.exp_probs_b.bias",
                                        "blk.0.indexer.proj.weight", "blk.0.indexer.k_norm.bias",
                                        "output_norm.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_non_null(find(&plan, names[i]));
        assert_true(find(&plan, names[i])->keep_f32);
    }
    assert_int_equal(find(&plan, "blk.0.indexer.attn_k.weight")->source_type, LP_TYPE_BF16);
    assert_null(find(&plan, "blk.2.indexer.attn_k.weight")); // a layer that shares
    lp_hf_plan_release(&plan);
}

// The formula of transformers (Llama 3.1): factor 8, turns 1 and 4 of 64 positions, base 1e4,
// width 16.
static void rope_freqs_are_a_tensor(void **state) {
    (void)state;
    struct lp_hf_plan plan;
    float got[8];
    make(&plan, FOLDER("llama"), false);
    const struct lp_hf_tensor *t = find(&plan, "rope_freqs.weight");
    assert_non_null(t);
    assert_true(t->ne[0] == 8 && t->keep_f32);
    assert_int_equal(lp_hf_tensor_pack(&plan, t, 0, 1, got, &err), LP_OK);
    // wavelengths 2 pi 10^(i/2): 6.28, 19.9, 62.8, 199 ... against 64/4 and 64/1
    assert_true(got[0] == 1 && got[3] == 8 && got[7] == 8);
    double smooth = (64 / (6.283185307179586 * 3.1622776601683795) - 1) / 3;
    assert_float_equal(got[1], 1 / ((1 - smooth) / 8 + smooth), 1e-5);
    lp_hf_plan_release(&plan);
}

// All rows at once, and one by one.
static void check_portions(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t) {
    int64_t n_rows = lp_hf_n_rows(t), n_in = (int64_t)t->ne[0];
    float *all = lp_alloc((size_t)(n_rows * n_in), sizeof *all);
    float *one = lp_alloc((size_t)n_in, sizeof *one);
    assert_int_equal(lp_hf_tensor_rows(plan, t, 0, n_rows, true, all, &err), LP_OK);
    for (int64_t r = 0; r < n_rows; r++) {
        assert_int_equal(lp_hf_tensor_rows(plan, t, r, 1, true, one, &err), LP_OK);
        assert_memory_equal(one, all + r * n_in, (size_t)n_in * sizeof *one);
    }
    lp_free(all);
    lp_free(one);
}

static void rows_do_not_depend_on_portions(void **state) {
    (void)state;
    static const char *const folders[] = {FOLDER("llama"), FOLDER("deepseek_v3")};
    for (size_t f = 0; f < 2; f++) {
        struct lp_hf_plan plan;
        make(&plan, folders[f], false);
        for (uint64_t i = 0; i < plan.n_tensors; i++) check_portions(&plan, &plan.tensors[i]);
        lp_hf_plan_release(&plan);
    }
}

static void pieces_cover_every_row_once(void **state) {
    (void)state;
    struct lp_hf_plan plan;
    struct lp_hf_piece *pieces;
    uint64_t n, max_values, tensor = 0;
    int64_t next = 0;
    make(&plan, FOLDER("deepseek_v3"), false);
    assert_int_equal(lp_hf_pieces_make(&pieces, &n, &max_values, &plan, NULL, &err), LP_OK);
    for (uint64_t i = 0; i < n; i++) {
        const struct lp_hf_piece *p = &pieces[i];
        assert_int_equal(p->tensor, tensor);
        assert_int_equal(p->first, next);
        assert_true((uint64_t)p->n * plan.tensors[tensor].ne[0] <= max_values);
        next += p->n;
        assert_int_equal(p->is_last, next == lp_hf_n_rows(&plan.tensors[tensor]));
        if (p->is_last) tensor++, next = 0;
    }
    assert_int_equal(tensor, plan.n_tensors);
    lp_free(pieces);
    lp_hf_plan_release(&plan);
}

// ---- running the pieces

struct job {
    int n_done, fail_at;
};

static lp_status step(void *data, int worker, const struct lp_hf_piece *piece, struct lp_err *e) {
    struct job *job = data;
    (void)worker, (void)piece;
    return ++job->n_done == job->fail_at ? lp_err_set(e, LP_STATUS_IO, "broken") : LP_OK;
}

static void a_failure_ends_the_work(void **state) {
    (void)state;
    struct lp_hf_piece pieces[10] = {{0}};
    struct job job = {.fail_at = 3};
    struct lp_hf_work work = {.fn = step, .data = &job, .n_threads = 1};
    assert_int_equal(lp_hf_pieces_run(&work, pieces, 10, &err), LP_STATUS_IO);
    assert_string_equal(err.text, "broken");
    assert_int_equal(job.n_done, 3);
    job = (struct job){0};
    assert_int_equal(lp_hf_pieces_run(&work, pieces, 10, &err), LP_OK);
    assert_int_equal(job.n_done, 10);
}

// ---- in place

static void a_folder_opens_as_a_gguf(void **state) {
    (void)state;
    struct lp_hf *hf;
    assert_int_equal(lp_hf_open(&hf, FOLDER("deepseek_v3"), 2, &err), LP_OK);
    const struct lp_gguf *gguf = lp_hf_gguf(hf);
    const struct lp_gguf_tensor *t =
        lp_gguf_find_tensor(gguf, lp_str_from("blk.1.ffn_up_exps.weight"));
    assert_non_null(t);
    assert_null(t->data); // four matrices, each where it is mapped
    assert_non_null(t->mats);
    assert_int_equal(t->ne[2], 4);
    assert_int_equal(t->type, LP_TYPE_BF16);
    t = lp_gguf_find_tensor(gguf, lp_str_from("blk.0.attn_norm.weight"));
    assert_int_equal(t->type, LP_TYPE_F32);
    lp_hf_close(hf);
    assert_int_not_equal(lp_hf_open(&hf, "tests/data", 1, &err), LP_OK);
    assert_null(hf);
    lp_hf_close(hf);
}

// Each nth allocation fails (the first hundred, then every 97th): a status and no leak, until all
// succeed.
static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    lp_status status = LP_STATUS_MEMORY;
    for (size_t nth = 1; status; nth += nth < 100 ? 1 : 97) {
        struct lp_hf *hf;
        err.text[0] = 0;
        lp_alloc_fail_after(nth);
        status = lp_hf_open(&hf, FOLDER("llama"), 1, &err);
        lp_alloc_fail_after(0);
        assert_true(status == LP_OK || status == LP_STATUS_MEMORY);
        assert_true(status == LP_OK || err.text[0]);
        lp_hf_close(hf);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_embedding_is_first_and_the_output_last),
        cmocka_unit_test(a_file_has_the_halves_of_kv_b_and_memory_the_whole),
        cmocka_unit_test(what_decides_stays_float32),
        cmocka_unit_test(rope_freqs_are_a_tensor),
        cmocka_unit_test(rows_do_not_depend_on_portions),
        cmocka_unit_test(pieces_cover_every_row_once),
        cmocka_unit_test(a_failure_ends_the_work),
        cmocka_unit_test(a_folder_opens_as_a_gguf),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
