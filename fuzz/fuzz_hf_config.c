// Any JSON as config.json, with or without a generation_config beside it ([config, generation]):
// accepted or refused with one sentence. What was accepted makes a header that the reader takes,
// and hyperparameters in range.
#include <stdlib.h>

#include "hf/hf_config.h"
#include "model/hparams.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check(struct lp_hf_model *m, struct lp_gguf_writer *w) {
    struct lp_err err = {0};
    char key[64];
    snprintf(key, sizeof key, "%s.vocab_size", m->arch);
    lp_gguf_writer_u32(w, key, (uint32_t)m->n_vocab); // else the number of tokens
    require(lp_gguf_writer_finish(w, &err) == LP_OK);
    struct lp_str header = lp_gguf_writer_header(w);
    struct lp_gguf *gguf;
    require(lp_gguf_parse(&gguf, (const uint8_t *)header.data, header.len, "fuzz", &err) == LP_OK);
    struct lp_hparams *h = malloc(sizeof *h);
    require(h != NULL);
    if (lp_hparams_read(h, gguf, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    require(h->n_layers == m->n_layers && h->n_nextn == m->n_nextn && h->n_experts == m->n_experts);
    require(h->n_kv_heads == m->n_kv_heads && h->q_rank == m->q_rank && h->top_k == m->top_k);
    require(m->n_rope_freqs == 0 || m->n_rope_freqs == h->rope_width / 2);
    for (int32_t l = 0; l < h->n_layers && h->top_k; l++)
        require((!m->full || m->full[l]) == (h->index_role[l] == LP_INDEXER_FULL));
    free(h);
    lp_gguf_close(gguf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_error_t error;
    json_t *json = json_loadb((const char *)data, size, JSON_DECODE_ANY, &error);
    if (!json) return 0;
    bool pair = json_is_array(json);
    struct lp_hf_folder folder = {.path = "fuzz",
                                  .name = "fuzz",
                                  .config = pair ? json_array_get(json, 0) : json,
                                  .generation_config = pair ? json_array_get(json, 1) : NULL};
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    struct lp_hf_model model;
    struct lp_err err = {0};
    lp_status status = lp_hf_config(&model, w, &folder, &err);
    if (status == LP_OK)
        check(&model, w);
    else
        require(err.status == status && err.text[0] != 0);
    lp_hf_model_release(&model);
    lp_gguf_writer_free(w);
    json_decref(json);
    return 0;
}
