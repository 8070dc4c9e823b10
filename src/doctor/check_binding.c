// Does every tensor have its place, and its right name? Binding says what does not fit; here it is
// put together: a tensor that goes by its Hugging Face or an old name explains the one that is
// missing, a whole layer is one fault, and the same tensor in many layers is one as well.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/accuse.h"
#include "doctor/file_checks.h"
#include "hf/hf_names.h"

#define MAX_NOTES 6       // of ignored tensors, by reason, and of names
#define INDEXER_TENSORS 5 // of a layer

struct finding {
    struct lp_misfit *misfit;
    char gguf[LP_HF_NAME_BYTES]; // UNKNOWN ones: the name it should have, or ""
    enum lp_hf_spelling spelling;
    bool explained; // another finding says it
};

struct fit {
    struct lp_exam *exam;
    struct finding *found;
    size_t n;
    int32_t n_accused;
};

static const char *stem_of(const struct lp_misfit *m) {
    const char *dot = m->block >= 0 ? strchr(m->name + 4, '.') : NULL;
    return dot ? dot + 1 : m->name;
}

static bool is_missing(const struct finding *f, const char *name) {
    return f->misfit->kind == LP_MISFIT_MISSING && strcmp(f->misfit->name, name) == 0;
}

// A tensor under another name explains that its right name is missing; kv_b both its halves.
static bool explain_missing(struct fit *fit, const char *name) {
    bool any = false;
    char k_b[LP_HF_NAME_BYTES] = "", v_b[LP_HF_NAME_BYTES] = "";
    const char *fused = strstr(name, "attn_kv_b.weight");
    if (fused) {
        snprintf(k_b, sizeof k_b, "%.*sattn_k_b.weight", (int)(fused - name), name);
        snprintf(v_b, sizeof v_b, "%.*sattn_v_b.weight", (int)(fused - name), name);
    }
    for (size_t i = 0; i < fit->n; i++) {
        struct finding *f = &fit->found[i];
        if (!is_missing(f, name) && !is_missing(f, k_b) && !is_missing(f, v_b)) continue;
        f->explained = any = true;
    }
    return any;
}

static int32_t block_of(const char *name) {
    int32_t block = -1;
    return sscanf(name, "blk.%d.", &block) == 1 && block >= 0 ? block : -1;
}

static void accuse_names(struct fit *fit) {
    int32_t n_more = 0;
    struct lp_report *report = fit->exam->report;
    for (size_t i = 0; i < fit->n; i++) {
        struct finding *f = &fit->found[i];
        if (f->misfit->kind != LP_MISFIT_UNKNOWN) continue;
        f->spelling = lp_hf_to_gguf(fit->exam->h.arch, lp_str_from(f->misfit->name), f->gguf);
        if (f->spelling != LP_HF_NAME && f->spelling != LP_HF_OTHER) continue;
        f->explained = true;
        bool there = lp_gguf_find_tensor(fit->exam->gguf, lp_str_from(f->gguf)) != NULL;
        bool explains = explain_missing(fit, f->gguf);
        if (fit->n_accused++ >= MAX_NOTES) {
            n_more++;
            continue;
        }
        lp_report_fault(report, LP_STAGE_FILE, "tensors bound", block_of(f->gguf), f->misfit->name,
                        "%s is %s of %s: the converter did not rename it. %s", f->misfit->name,
                        f->spelling == LP_HF_NAME ? "the Hugging Face name" : "another spelling",
                        f->gguf,
                        there      ? "That tensor is in the file as well: this is a second copy."
                        : explains ? "Convert the model again, or rename the tensor."
                                   : "Convert the model again with a converter for this "
                                     "architecture.");
    }
    if (n_more)
        lp_report_fault(report, LP_STAGE_FILE, "tensors bound", -1, "tensor names",
                        "%d further tensors have names that the converter did not change.", n_more);
}

// A layer of which everything is missing is one fault.
static void accuse_layers(struct fit *fit) {
    for (int32_t b = 0; b < fit->exam->h.n_layers; b++) {
        size_t n_missing = 0;
        bool any = false;
        for (uint64_t i = 0; i < lp_gguf_n_tensors(fit->exam->gguf) && !any; i++)
            any = lp_exam_layer_of(lp_gguf_tensor_at(fit->exam->gguf, i)) == b;
        for (size_t i = 0; i < fit->n && !any; i++) {
            struct finding *f = &fit->found[i];
            if (f->explained || f->misfit->block != b) continue;
            f->explained = true;
            n_missing++;
        }
        if (!n_missing) continue;
        char what[32];
        snprintf(what, sizeof what, "blk.%d", b);
        fit->n_accused++;
        lp_report_fault(
            fit->exam->report, LP_STAGE_FILE, "tensors bound", b, what,
            "No tensor of layer %d is in the file (%zu are needed): a part of the model "
            "was left out when it was made. Convert or fetch it again.",
            b, n_missing);
    }
}

// Layers whose whole indexer is missing: one fault for all of them.
static void accuse_indexers(struct fit *fit) {
    int32_t n_layers = 0, first = -1;
    for (int32_t b = 0; b < fit->exam->h.n_layers; b++) {
        struct finding *own[INDEXER_TENSORS];
        size_t n = 0;
        for (size_t i = 0; i < fit->n; i++) {
            struct finding *f = &fit->found[i];
            bool indexer = strncmp(stem_of(f->misfit), "indexer.", 8) == 0;
            if (f->explained || f->misfit->block != b || !indexer) continue;
            if (f->misfit->kind == LP_MISFIT_MISSING && n < INDEXER_TENSORS) own[n++] = f;
        }
        if (n < INDEXER_TENSORS) continue;
        for (size_t i = 0; i < n; i++) own[i]->explained = true;
        if (!n_layers++) first = b;
    }
    if (!n_layers) return;
    char what[32], more[64] = "";
    snprintf(what, sizeof what, "blk.%d.indexer", first);
    if (n_layers > 1) snprintf(more, sizeof more, " (and of %d further layers)", n_layers - 1);
    fit->n_accused++;
    lp_report_fault(fit->exam->report, LP_STAGE_FILE, "tensors bound", first, what,
                    "All tensors of the indexer of layer %d%s are missing, though the layer "
                    "computes its own selection. They were lost when the file was made: convert it "
                    "again with a converter that knows the indexer.",
                    first, more);
}

// "layers 1, 2, 4 and 3 more"
static void list_layers(const struct fit *fit, const struct finding *first, char *out,
                        size_t bytes) {
    size_t used = 0, n = 0, n_more = 0;
    out[0] = 0;
    for (size_t i = 0; i < fit->n; i++) {
        const struct lp_misfit *m = fit->found[i].misfit;
        if (m->kind != first->misfit->kind || m->block < 0 ||
            strcmp(stem_of(m), stem_of(first->misfit)) != 0)
            continue;
        if (n++ < 8 && used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, n > 1 ? ", %d" : "%d", m->block);
        else
            n_more++;
    }
    if (n_more && used < bytes) snprintf(out + used, bytes - used, " and %zu more", n_more);
}

static const char *remedy(enum lp_misfit_kind kind) {
    switch (kind) {
    case LP_MISFIT_MISSING:
        return "It was lost when the file was made: convert or fetch it again.";
    case LP_MISFIT_SHAPE:
        return "Its neighbours fit the metadata, so this tensor is another one or damaged: convert "
               "the model again.";
    case LP_MISFIT_TYPE:
        return "Convert or quantise the model again with a type that limpid reads.";
    case LP_MISFIT_UNKNOWN:
        return "If the model needs it, its output is wrong without it: use the architecture it was "
               "made for.";
    }
    return "";
}

static void accuse_rest(struct fit *fit) {
    for (size_t i = 0; i < fit->n; i++) {
        struct finding *f = &fit->found[i];
        char layers[128];
        size_t n = 0;
        if (f->explained) continue;
        for (size_t k = i; k < fit->n; k++) {
            struct finding *o = &fit->found[k];
            if (o->explained || o->misfit->kind != f->misfit->kind ||
                strcmp(stem_of(o->misfit), stem_of(f->misfit)) != 0)
                continue;
            o->explained = true;
            n++;
        }
        list_layers(fit, f, layers, sizeof layers);
        fit->n_accused++;
        if (n > 1)
            lp_report_fault(fit->exam->report, LP_STAGE_FILE, "tensors bound", f->misfit->block,
                            f->misfit->name, "%s. So it is in layers %s. %s", f->misfit->text,
                            layers, remedy(f->misfit->kind));
        else
            lp_report_fault(fit->exam->report, LP_STAGE_FILE, "tensors bound", f->misfit->block,
                            f->misfit->name, "%s. %s", f->misfit->text, remedy(f->misfit->kind));
    }
}

static lp_status accuse_all(struct fit *fit, struct lp_misfit *list, struct lp_err *err) {
    fit->found = lp_alloc(fit->n, sizeof *fit->found);
    if (!fit->found) return lp_err_memory(err, fit->n * sizeof *fit->found, "what does not fit");
    for (size_t i = 0; i < fit->n; i++) fit->found[i].misfit = &list[i];
    accuse_names(fit);
    accuse_layers(fit);
    accuse_indexers(fit);
    accuse_rest(fit);
    uint64_t n = lp_gguf_n_tensors(fit->exam->gguf), n_in_file = 0;
    for (size_t i = 0; i < fit->n; i++) n_in_file += list[i].kind != LP_MISFIT_MISSING;
    lp_accuse_counted(fit->exam->report, LP_STAGE_FILE, "tensors bound", n - n_in_file, fit->n,
                      "%zu tensors are missing, misshapen, unknown or of no use", fit->n);
    lp_free(fit->found);
    return LP_OK;
}

// ---- a file whose tensors fit ----

static void note_ignored(struct lp_report *report, const struct lp_binding *b) {
    int n_notes = 0;
    for (uint64_t i = 0; i < b->n_ignored; i++) {
        uint64_t n = 0, bytes = 0;
        bool said = false;
        for (uint64_t k = 0; k < b->n_ignored; k++) {
            if (strcmp(b->ignored[k].reason, b->ignored[i].reason) != 0) continue;
            said = said || k < i;
            n++;
            bytes += b->ignored[k].tensor->n_bytes;
        }
        if (said || n_notes++ >= MAX_NOTES) continue;
        lp_report_say(report, LP_STAGE_FILE, LP_CHECK_NOTE, "tensors ignored",
                      "%s tensor%s of %s bytes (the first is %.*s): %s", lp_accuse_number(n).text,
                      n == 1 ? "" : "s", lp_accuse_number(bytes).text,
                      LP_STR_ARGS(b->ignored[i].tensor->name), b->ignored[i].reason);
    }
}

static void note_types(struct lp_report *report, const struct lp_gguf *gguf) {
    uint64_t n = 0;
    struct lp_str first = {0};
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        if (t->n_dims != 1 || (t->type != LP_TYPE_F16 && t->type != LP_TYPE_BF16)) continue;
        if (!n++) first = t->name;
    }
    if (n)
        lp_report_say(report, LP_STAGE_FILE, LP_CHECK_NOTE, "vectors",
                      "%s norms or biases are not F32 (the first is %.*s); limpid converts them, "
                      "other engines may read them as floats",
                      lp_accuse_number(n).text, LP_STR_ARGS(first));
}

// Both directions of the table, for the tensors that are bound.
static void check_names(struct lp_exam *exam) {
    uint64_t n_right = 0, n_wrong = 0, n_computed = 0;
    const struct lp_gguf *g = exam->gguf;
    struct lp_hf_count table = lp_hf_count(exam->h.arch);
    for (uint64_t i = 0; i < lp_gguf_n_tensors(g); i++) {
        struct lp_str name = lp_gguf_tensor_at(g, i)->name;
        char there[LP_HF_NAME_BYTES], back[LP_HF_NAME_BYTES];
        if (lp_hf_to_gguf(exam->h.arch, name, back) != LP_HF_GGUF) continue; // ignored ones
        if (!lp_hf_name(exam->h.arch, name, there)) {
            n_computed++;
            continue;
        }
        bool right = lp_hf_to_gguf(exam->h.arch, lp_str_from(there), back) == LP_HF_NAME;
        n_right += right;
        n_wrong += !right;
    }
    lp_accuse_counted(exam->report, LP_STAGE_FILE, "Hugging Face names", n_right, n_wrong,
                      "every tensor of the file has its name in the checkpoint (%s computed by the "
                      "converter have none); the table has %d names for this architecture, %d lead "
                      "there and back, %d are halves of one tensor",
                      lp_accuse_number(n_computed).text, table.n_rows, table.n_there_and_back,
                      table.n_halves);
}

static void all_bound(struct lp_exam *exam, const struct lp_binding *b) {
    char figure[80];
    snprintf(figure, sizeof figure, "%s of %s", lp_accuse_number(b->n_bound + b->n_ignored).text,
             lp_accuse_number(b->n_tensors).text);
    struct lp_check_note note = {.stage = LP_STAGE_FILE,
                                 .outcome = LP_CHECK_OK,
                                 .name = "tensors bound",
                                 .figure = figure,
                                 .bound = "all",
                                 .value = (double)(b->n_bound + b->n_ignored),
                                 .limit = (double)b->n_tensors};
    lp_report_check(exam->report, &note,
                    "%s bound with the expected shape and a usable type, %s "
                    "ignored for a reason",
                    lp_accuse_number(b->n_bound).text, lp_accuse_number(b->n_ignored).text);
    note_ignored(exam->report, b);
    note_types(exam->report, exam->gguf);
    check_names(exam);
}

lp_status lp_check_binding(struct lp_exam *exam, struct lp_err *err) {
    struct lp_misfit *list = NULL;
    struct lp_binding binding;
    struct fit fit = {.exam = exam};
    struct lp_err why = {0};
    bool (*supports)(const struct lp_device *, lp_type) = exam->fast->backend->supports;
    lp_status status =
        lp_binding_misfits(&list, &fit.n, &exam->h, exam->gguf, supports, exam->fast, &why);
    if (!status && fit.n)
        status = accuse_all(&fit, list, &why);
    else if (!status) {
        status = lp_binding_make(&binding, &exam->h, exam->gguf, supports, exam->fast, &why);
        exam->bound = !status;
        if (!status) all_bound(exam, &binding);
        if (!status) lp_binding_release(&binding);
    }
    lp_free(list);
    if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
    if (status) {
        lp_report_say(exam->report, LP_STAGE_FILE, LP_CHECK_FAULT, "tensors bound", "%s", why.text);
        lp_report_fault(exam->report, LP_STAGE_FILE, "tensors bound", -1, "tensors", "%s",
                        why.text);
    }
    return LP_OK;
}
