// Invariant 4: every tensor is bound, or ignored with a reason; what is missing is named.
#include "assembled.h"

#include "base/alloc.h"
#include "model/binding.h"

static bool any_weight(const struct lp_device *dev, lp_type type) {
    (void)dev;
    return lp_type_info(type)->is_weight;
}
static bool no_q8_0(const struct lp_device *dev, lp_type type) {
    (void)dev;
    return type != LP_TYPE_Q8_0;
}

static void every_tensor_of_every_golden_model_is_accounted_for(void **state) {
    (void)state;
    static const char *const names[] = {"dsa_dense", "dsa_sparse", "dsa_shared", "dsa_full_dims",
                                        "ds3",       "ds32",       "ds2_lite",   "glm47_flash",
                                        "glm45",     "llama",      "qwen2",      "qwen3"};
    static struct lp_hparams h;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        struct lp_gguf *gguf;
        struct lp_binding binding;
        struct lp_err err;
        snprintf(path, sizeof path, "tests/golden/%s.gguf", names[i]);
        assert_int_equal(lp_gguf_open(&gguf, path, &err), LP_OK);
        assert_int_equal(lp_hparams_read(&h, gguf, &err), LP_OK);
        assert_int_equal(lp_binding_make(&binding, &h, gguf, any_weight, NULL, &err), LP_OK);
        assert_int_equal(binding.n_bound + binding.n_ignored, lp_gguf_n_tensors(gguf));
        for (uint64_t k = 0; k < binding.n_ignored; k++) assert_non_null(binding.ignored[k].reason);
        lp_binding_release(&binding);
        lp_gguf_close(gguf);
    }
}

// What a file should hold, from the metadata alone, is what the goldens hold: names and shapes that
// another converter chose.
static void what_is_expected_is_what_the_goldens_hold(void **state) {
    (void)state;
    static const char *const names[] = {"dsa_dense", "dsa_sparse", "dsa_shared", "dsa_full_dims",
                                        "ds3",       "ds32",       "ds2_lite",   "glm47_flash",
                                        "glm45",     "llama",      "qwen2",      "qwen3"};
    static struct lp_hparams h;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        struct lp_gguf *gguf;
        struct lp_expected *expected;
        struct lp_err err;
        size_t n;
        snprintf(path, sizeof path, "tests/golden/%s.gguf", names[i]);
        assert_int_equal(lp_gguf_open(&gguf, path, &err), LP_OK);
        assert_int_equal(lp_hparams_read(&h, gguf, &err), LP_OK);
        bool untied = lp_gguf_find_tensor(gguf, lp_str_from("output.weight")) != NULL;
        bool qk_norm = lp_gguf_find_tensor(gguf, lp_str_from("blk.0.attn_q_norm.weight")) != NULL;
        assert_int_equal(lp_binding_expected(&expected, &n, &h, untied, qk_norm, &err), LP_OK);
        for (size_t k = 0; k < n; k++) {
            struct lp_str name = lp_str_from(expected[k].name);
            const struct lp_gguf_tensor *t = lp_gguf_find_tensor(gguf, name);
            if (!t) fail_msg("%s has no %s", names[i], expected[k].name);
            assert_int_equal(t->n_dims, expected[k].n_dims);
            assert_memory_equal(t->ne, expected[k].ne, sizeof t->ne);
            if (expected[k].vector) assert_int_equal(t->type, LP_TYPE_F32);
        }
        // the MTP layer of glm45 has an embedding and a head of its own
        uint64_t n_more = strcmp(names[i], "glm45") == 0 ? 2 : 0;
        assert_int_equal(lp_gguf_n_tensors(gguf), n + n_more);
        lp_free(expected);
        lp_gguf_close(gguf);
    }
}

static const struct lp_fact *mtp_fact(const struct lp_hparams *h) {
    const struct lp_fact *found = NULL;
    for (int32_t i = 0; i < h->n_facts; i++)
        if (strcmp(h->facts[i].name, "MTP layer") == 0) {
            assert_null(found);
            found = &h->facts[i];
        }
    return found;
}

static void the_mini_model_is_bound_to_its_last_tensor(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_gguf *gguf;
    struct lp_binding binding;
    struct lp_err err;
    assert_int_equal(lp_gguf_open(&gguf, "models/mini-glm-dsa.gguf", &err), LP_OK);
    assert_int_equal(lp_hparams_read(&h, gguf, &err), LP_OK);
    assert_int_equal(lp_binding_make(&binding, &h, gguf, any_weight, NULL, &err), LP_OK);
    // 3 global, a dense layer of 18, MoE layers of 23, an MTP layer of 27 (spec of the
    // architecture)
    assert_int_equal(binding.n_bound, 3 + 18 + 4 * 23 + 27);
    assert_int_equal(binding.n_ignored, 0);
    assert_true(binding.has_mtp);
    assert_int_equal(h.index_role[5], LP_INDEXER_FULL);
    // its matrices are Q8_0, 8.5 bits, but for the router and indexer.proj: 256 x (8 + 4) of F32
    struct lp_mtp_size size = lp_binding_mtp_size(&binding, &h);
    uint64_t n_bytes = 0;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++)
        if (memcmp(lp_gguf_tensor_at(gguf, i)->name.data, "blk.5.", 6) == 0)
            n_bytes += lp_gguf_tensor_at(gguf, i)->n_bytes;
    assert_int_equal(size.n_bytes, n_bytes);
    assert_true(size.bits_per_weight > 8.5 && size.bits_per_weight < 8.6);
    assert_non_null(mtp_fact(&h));
    assert_non_null(strstr(mtp_fact(&h)->value, "block 5, "));
    assert_non_null(strstr(mtp_fact(&h)->value, " MB, 8.5 bits per weight"));
    lp_binding_release(&binding);
    // a backend without a kernel for a type: named before anything runs
    assert_int_equal(lp_binding_make(&binding, &h, gguf, no_q8_0, NULL, &err),
                     LP_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "token_embd.weight"));
    assert_non_null(strstr(err.text, "Q8_0"));
    // other sizes: the first misshapen tensor is named with both shapes
    h.n_embd = 320;
    assert_int_equal(lp_binding_make(&binding, &h, gguf, any_weight, NULL, &err), LP_STATUS_FORMAT);
    assert_non_null(
        strstr(err.text, "token_embd.weight has shape [256, 3584], expected [320, 3584]"));
    lp_gguf_close(gguf);
}

// A golden model with tensors renamed in its directory: pairs of names of one length, then NULL.
static void open_renamed(struct lp_gguf **gguf, const char *path, const char *const *names) {
    struct lp_err err;
    char copy[] = "/tmp/limpid-binding-XXXXXX";
    FILE *in = fopen(path, "rb"), *out = fdopen(mkstemp(copy), "wb");
    assert_true(in && out);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    size_t n = (size_t)ftell(in);
    char *bytes = malloc(n);
    rewind(in);
    assert_int_equal(fread(bytes, 1, n, in), n);
    for (; *names; names += 2) {
        size_t length = strlen(names[0]);
        assert_int_equal(length, strlen(names[1]));
        char *at = memmem(bytes, n, names[0], length);
        assert_non_null(at);
        memcpy(at, names[1], length);
    }
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    fclose(out);
    free(bytes);
    assert_int_equal(lp_gguf_open(gguf, copy, &err), LP_OK);
    remove(copy); // the mapping stays
}

static void check_mtp(const char *path, const char *const *names, bool usable, uint64_t n_ignored,
                      const char *reason) {
    static struct lp_hparams h;
    struct lp_gguf *gguf;
    struct lp_binding binding;
    struct lp_err err;
    open_renamed(&gguf, path, names);
    assert_int_equal(lp_hparams_read(&h, gguf, &err), LP_OK);
    assert_int_equal(lp_binding_make(&binding, &h, gguf, any_weight, NULL, &err), LP_OK);
    assert_int_equal(binding.has_mtp, usable);
    assert_int_equal(binding.n_ignored, n_ignored);
    assert_int_equal(binding.n_bound + binding.n_ignored, lp_gguf_n_tensors(gguf));
    for (uint64_t i = 0; i < n_ignored; i++) {
        assert_memory_equal(binding.ignored[i].tensor->name.data, "blk.5.", 6);
        assert_non_null(strstr(binding.ignored[i].reason, reason));
    }
    for (int s = 0; s < LP_N_SLOTS && !usable; s++)
        assert_null(binding.blocks[h.n_layers].tensor[s]);
    assert_non_null(mtp_fact(&h));
    if (!usable) assert_string_equal(mtp_fact(&h)->value, "none that can be used");
    lp_binding_release(&binding);
    lp_gguf_close(gguf);
}

static void a_damaged_mtp_layer_is_left_out_whole(void **state) {
    (void)state;
    static const char path[] = "tests/golden/dsa_sparse.gguf";
    uint64_t n_mtp = 27;
    check_mtp(path, (const char *const[]){NULL}, true, 0, "");
    check_mtp(path,
              (const char *const[]){"blk.5.nextn.enorm.weight", "blk.5.nextn.other.weight", NULL},
              false, n_mtp, "not usable: tensor blk.5.nextn.enorm.weight is missing");
    check_mtp(
        path,
        (const char *const[]){"blk.5.indexer.attn_k.weight", "blk.5.indexer.attn_x.weight", NULL},
        false, n_mtp, "not usable: tensor blk.5.indexer.attn_k.weight is missing");
    check_mtp(path, // a missing alternative is noticed when all rows of the table are bound
              (const char *const[]){"blk.5.attn_k_b.weight", "blk.5.attn_x_b.weight", NULL}, false,
              n_mtp, "not usable: tensor blk.5.attn_k_b.weight is missing");
    check_mtp(path, // exchanged: attn_output has the shape of a norm
              (const char *const[]){"blk.5.attn_output.weight", "blk.5.xxxxxxxxxxx.weight",
                                    "blk.5.nextn.hnorm.weight", "blk.5.attn_output.weight",
                                    "blk.5.xxxxxxxxxxx.weight", "blk.5.nextn.hnorm.weight", NULL},
              false, n_mtp, "not usable: tensor blk.5.attn_output.weight has shape");
    check_mtp(path, // optional: output_norm takes its place; the unknown tensor is named
              (const char *const[]){"blk.5.nextn.shared_head_norm.weight",
                                    "blk.5.nextn.shared_head_xxxx.weight", NULL},
              true, 1, "not part of an MTP layer");
}

static void only_the_first_of_several_mtp_layers_is_used(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_gguf *gguf;
    struct lp_binding binding;
    struct lp_err err;
    assert_int_equal(lp_gguf_open(&gguf, "models/mini-glm-dsa.gguf", &err), LP_OK);
    assert_int_equal(lp_hparams_read(&h, gguf, &err), LP_OK);
    h.n_layers = 4; // as if blocks 4, a decoder layer, and 5 were MTP layers
    h.n_nextn = 2;
    assert_int_equal(lp_binding_make(&binding, &h, gguf, any_weight, NULL, &err), LP_OK);
    assert_false(binding.has_mtp);
    assert_int_equal(binding.n_bound, 3 + 18 + 3 * 23);
    assert_int_equal(binding.n_ignored, 23 + 27);
    for (uint64_t k = 0; k < binding.n_ignored; k++)
        assert_non_null(strstr(binding.ignored[k].reason,
                               memcmp(binding.ignored[k].tensor->name.data, "blk.5.", 6) == 0
                                   ? "behind the first one"
                                   : "blk.4.nextn.eh_proj.weight is missing"));
    lp_binding_release(&binding);
    lp_gguf_close(gguf);
}

static void all_that_does_not_fit_is_listed(void **state) {
    (void)state;
    static struct lp_hparams h;
    static const char *const names[] = {"blk.1.attn_v_b.weight", "blk.1.attn_v_c.weight",
                                        "blk.2.ffn_norm.weight", "blk.2.ffn_nirm.weight", NULL};
    struct lp_gguf *gguf;
    struct lp_misfit *list;
    size_t n;
    struct lp_err err;
    open_renamed(&gguf, "tests/golden/dsa_sparse.gguf", names);
    assert_int_equal(lp_hparams_read(&h, gguf, &err), LP_OK);
    assert_int_equal(lp_binding_misfits(&list, &n, &h, gguf, any_weight, NULL, &err), LP_OK);
    assert_int_equal(n, 4);
    assert_int_equal(list[0].kind, LP_MISFIT_MISSING);
    assert_string_equal(list[0].name, "blk.1.attn_v_b.weight");
    assert_int_equal(list[0].block, 1);
    assert_string_equal(list[1].name, "blk.2.ffn_norm.weight");
    for (size_t i = 2; i < 4; i++) assert_int_equal(list[i].kind, LP_MISFIT_UNKNOWN);
    lp_free(list);
    // another width: every tensor that has it, each once
    h.n_embd = 32;
    assert_int_equal(lp_binding_misfits(&list, &n, &h, gguf, any_weight, NULL, &err), LP_OK);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) assert_string_not_equal(list[i].name, list[k].name);
    assert_true(n > 30);
    lp_free(list);
    lp_gguf_close(gguf);
    // nothing to list
    assert_int_equal(lp_gguf_open(&gguf, "tests/golden/ds3.gguf", &err), LP_OK);
    assert_int_equal(lp_hparams_read(&h, gguf, &err), LP_OK);
    assert_int_equal(lp_binding_misfits(&list, &n, &h, gguf, any_weight, NULL, &err), LP_OK);
    assert_int_equal(n, 0);
    lp_free(list);
    lp_gguf_close(gguf);
}

// What binding dsa_sparse says when it has one more tensor; NULL: all is well.
static const char *refusal(const char *name, lp_type type, uint64_t n) {
    static struct lp_hparams h;
    static struct lp_err err;
    static const float factors[64];
    struct assembled a;
    struct lp_binding binding;
    assemble(&a, "tests/golden/dsa_sparse.gguf",
             (const struct more_tensor[]){{name, type, n, factors}, {NULL}}, NULL);
    assert_int_equal(lp_hparams_read(&h, a.gguf, &err), LP_OK);
    lp_status status = lp_binding_make(&binding, &h, a.gguf, any_weight, NULL, &err);
    if (!status) assert_int_equal(binding.n_bound + binding.n_ignored, binding.n_tensors);
    if (!status) lp_binding_release(&binding);
    disassemble(&a);
    return status ? err.text : NULL;
}

static void factors_are_bound_to_their_matrices(void **state) {
    (void)state;
    static const float factors[8];
    static struct lp_hparams h;
    struct assembled a;
    struct lp_binding b;
    struct lp_err err;
    const struct more_tensor more[] = {{"output.scale", LP_TYPE_F32, 1, factors},
                                       {"blk.2.attn_output.scale", LP_TYPE_F32, 1, factors},
                                       {"blk.2.attn_v_b.scale", LP_TYPE_F32, 1, factors},
                                       {"blk.3.ffn_down_exps.scale", LP_TYPE_F32, 8, factors},
                                       {"blk.3.ffn_down_exps.input_scale", LP_TYPE_F32, 8, factors},
                                       {NULL}};
    assemble(&a, "tests/golden/dsa_sparse.gguf", more, NULL);
    assert_int_equal(lp_hparams_read(&h, a.gguf, &err), LP_OK);
    assert_int_equal(lp_binding_make(&b, &h, a.gguf, any_weight, NULL, &err), LP_OK);
    const struct lp_gguf_tensor *bound[] = {
        b.model.scale[LP_SLOT_OUTPUT], b.blocks[2].scale[LP_SLOT_ATTN_OUTPUT],
        b.blocks[2].scale[LP_SLOT_V_B], b.blocks[3].scale[LP_SLOT_DOWN_EXPS]};
    for (int i = 0; i < 4; i++) {
        assert_non_null(bound[i]);
        assert_true(lp_str_is(bound[i]->name, more[i].name));
    }
    assert_int_equal(b.n_ignored, 1);
    assert_non_null(strstr(b.ignored[0].reason, "activations of 4 bits"));
    lp_binding_release(&b);
    disassemble(&a);
}

static void factors_that_do_not_fit_are_refused(void **state) {
    (void)state;
    assert_null(refusal("blk.3.attn_k_b.scale", LP_TYPE_F32, 4)); // one for each head
    assert_non_null(strstr(refusal("blk.3.ffn_up_exps.scale", LP_TYPE_F32, 7),
                           "blk.3.ffn_up_exps.scale has shape [7], expected [8]"));
    assert_non_null(strstr(refusal("blk.3.ffn_up_exps.scale", LP_TYPE_F32, 1), "expected [8]"));
    assert_non_null(strstr(refusal("blk.3.attn_output.scale", LP_TYPE_F32, 2), "expected [1]"));
    assert_non_null(strstr(refusal("blk.3.attn_output.scale", LP_TYPE_F16, 1), "expected F32"));
    static const char *const strays[] = {"blk.3.nothing.scale", "blk.3.attn_norm.scale",
                                         "blk.0.ffn_up_exps.scale", "scale", "x.scale"};
    for (int i = 0; i < 5; i++) {
        const char *text = refusal(strays[i], LP_TYPE_F32, 1);
        assert_non_null(text);
        assert_non_null(strstr(text, strays[i]));
        if (i != 3) assert_non_null(strstr(text, "no matrix"));
    }
    // The MTP layer alone is left out.
    assert_null(refusal("blk.5.ffn_up_exps.scale", LP_TYPE_F32, 7));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_bound_to_their_matrices),
        cmocka_unit_test(factors_that_do_not_fit_are_refused),
        cmocka_unit_test(every_tensor_of_every_golden_model_is_accounted_for),
        cmocka_unit_test(what_is_expected_is_what_the_goldens_hold),
        cmocka_unit_test(the_mini_model_is_bound_to_its_last_tensor),
        cmocka_unit_test(a_damaged_mtp_layer_is_left_out_whole),
        cmocka_unit_test(only_the_first_of_several_mtp_layers_is_used),
        cmocka_unit_test(all_that_does_not_fit_is_listed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
