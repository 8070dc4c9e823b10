// Stage "file": is the container whole, does every tensor have its place, do the metadata make
// sense. What cannot be opened or bound is said here, once, and later stages are told what they may
// use (exam->gguf, has_hparams, bound).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "doctor/accuse.h"
#include "doctor/file_checks.h"

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// ---- a container that cannot be opened ----

// What is in a file that is no GGUF, by its first bytes.
static const char *other_content(const char *path) {
    static const struct {
        const char *begin;
        size_t at;
        const char *what;
    } kinds[] = {
        {"version https://git-lfs", 0,
         "It is a Git LFS pointer, a few lines that stand for the file: fetch the file itself (git "
         "lfs pull)."},
        {"<!DOCTYPE", 0, "It is a web page: the download was answered by an error or a login."},
        {"<html", 0, "It is a web page: the download was answered by an error or a login."},
        {"{\"", 0, "It is JSON, perhaps an error message in place of the file: look into it."},
        {"{\"", 8,
         "It is a safetensors checkpoint: name its folder, which must hold config.json and "
         "tokenizer.json too."},
        {"PK\x03\x04", 0,
         "It is a ZIP archive or a PyTorch checkpoint: unpack or convert it first."},
        {"\x1f\x8b", 0, "It is compressed with gzip: unpack it first."},
        {"\x28\xb5\x2f\xfd", 0, "It is compressed with zstd: unpack it first."},
        {"ggjt", 0, "It is of the format before GGUF: convert the model again."},
        {"tjgg", 0, "It is of the format before GGUF: convert the model again."},
        {"lmgg", 0, "It is of the format before GGUF: convert the model again."},
        {"\0\0\0\0\0\0\0", 0,
         "It begins with zeros: the download reserved its space and did not fill it."},
    };
    char head[64] = "";
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(head, 1, sizeof head, file) : 0;
    if (file) fclose(file);
    if (file && n == 0) return "The file is empty: fetch it again.";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t len = kinds[i].begin[0] ? strlen(kinds[i].begin) : 8;
        if (n >= kinds[i].at + len && memcmp(head + kinds[i].at, kinds[i].begin, len) == 0)
            return kinds[i].what;
    }
    return "Look at its first bytes: it may be another kind of file or damaged at the start.";
}

// The file that a sentence begins with ("NAME: ..." or "NAME says ..."), in the folder of path.
static void named_file(const char *path, const char *sentence, char *out, size_t bytes) {
    const char *end = strstr(sentence, ".gguf");
    size_t n = end ? (size_t)(end - sentence) + 5 : 0;
    snprintf(out, bytes, "%s", base_name(path));
    if (n && n < bytes && !memchr(sentence, ' ', n) && !memchr(sentence, '/', n))
        snprintf(out, bytes, "%.*s", (int)n, sentence);
}

static bool says(const struct lp_err *err, const char *words) {
    return strstr(err->text, words) != NULL;
}

// How many bytes are missing, where the sentence says how many were expected; else "".
static void missing_bytes(const char *path, const char *name, const struct lp_err *err, char *out,
                          size_t bytes) {
    char full[4096];
    struct stat info;
    const char *at = strstr(err->text, "(expected about ");
    out[0] = 0;
    snprintf(full, sizeof full, "%.*s%s", (int)(base_name(path) - path), path, name);
    if (!at || stat(full, &info)) return;
    unsigned long long expected = strtoull(at + strlen("(expected about "), NULL, 10);
    if (expected > (unsigned long long)info.st_size)
        snprintf(out, bytes, "About %s bytes of %s are missing. ",
                 lp_accuse_number(expected - (unsigned long long)info.st_size).text, name);
}

static const char *remedy(const char *path, const struct lp_err *err) {
    if (says(err, "not a GGUF file")) return other_content(path);
    if (says(err, "missing from its folder"))
        return "Fetch the missing parts into the same folder.";
    if (says(err, "cut off"))
        return "The download or copy did not end: fetch it again and compare its size with the "
               "source's.";
    if (says(err, "trailing data"))
        return "Fetch the parts again and keep them apart: they need no joining.";
    if (says(err, "swapped") || says(err, "another set") || says(err, "another model") ||
        says(err, "doubled"))
        return "Fetch the parts of one set again into a folder of their own, under their own "
               "names.";
    if (says(err, "split")) return "Compare the names and sizes of all parts with the source's.";
    if (err->status == LP_STATUS_UNSUPPORTED) return "Use a file of a kind that limpid reads.";
    return "Fetch or convert the file again.";
}

// Of missing parts the first is named.
static void missing_part(const struct lp_err *err, char *out, size_t bytes) {
    const char *list = strstr(err->text, "missing from its folder");
    if (!list || !(list = strstr(list, "): "))) return;
    list += 3;
    snprintf(out, bytes, "%.*s", (int)strcspn(list, ", "), list);
}

// The whole file is at fault where its end or its set is; else the key or tensor that is named.
static void container_fault(struct lp_exam *exam, const struct lp_err *err) {
    char what[LP_WHAT_BYTES], file[256], missing[320];
    const char *path = exam->options->path;
    named_file(path, err->text, file, sizeof file);
    bool whole = says(err, "cut off") || says(err, "trailing data") || says(err, "split") ||
                 says(err, "part") || says(err, "not a GGUF") || says(err, "n_tensors") ||
                 says(err, "n_kv") || says(err, "cannot");
    if (whole || !lp_accuse_what(err->text, what)) snprintf(what, sizeof what, "%.127s", file);
    missing_part(err, what, sizeof what);
    missing_bytes(path, file, err, missing, sizeof missing);
    lp_report_say(exam->report, LP_STAGE_FILE, LP_CHECK_FAULT, "container", "%s", err->text);
    lp_report_fault(exam->report, LP_STAGE_FILE, "container", -1, what, "%s. %s%s", err->text,
                    missing, remedy(path, err));
}

// ---- one that was opened ----

static void container_ok(struct lp_exam *exam) {
    const struct lp_gguf *g = exam->gguf;
    char figure[64], format[64];
    uint32_t n = lp_gguf_n_shards(g);
    bool folder = exam->file.hf != NULL;
    snprintf(figure, sizeof figure, "%u part%s", n, n == 1 ? "" : "s");
    snprintf(format, sizeof format, "GGUF version %u", lp_gguf_version(g));
    if (folder) snprintf(format, sizeof format, "config.json and safetensors");
    struct lp_check_note note = {.stage = LP_STAGE_FILE,
                                 .outcome = LP_CHECK_OK,
                                 .name = "container",
                                 .figure = figure,
                                 .bound = "whole",
                                 .value = n,
                                 .limit = n};
    lp_report_check(exam->report, &note,
                    "%s, %s bytes, %s keys, %s tensors; every offset and size lies in its file",
                    format, lp_accuse_number(lp_gguf_file_bytes(g)).text,
                    lp_accuse_number(lp_gguf_n_kv(g)).text,
                    lp_accuse_number(lp_gguf_n_tensors(g)).text);
}

// The name of a tensor without its layer.
static struct lp_str stem_of(const struct lp_gguf_tensor *t) {
    struct lp_str name = t->name;
    if (lp_exam_layer_of(t) < 0) return name;
    size_t at = 4;
    while (name.data[at] != '.') at++;
    return (struct lp_str){name.data + at + 1, name.len - at - 1};
}

// A set in which a part of another quantisation stands has its types change at that part's ends:
// nothing of it says whose it is. Ordinary mixes change within parts as well.
static void look_for_foreign_parts(struct lp_exam *exam) {
    const struct lp_gguf *g = exam->gguf;
    uint32_t n_parts = lp_gguf_n_shards(g);
    for (uint32_t part = 0; part < n_parts && n_parts > 1; part++) {
        uint64_t n_same = 0, n_other = 0;
        for (uint64_t i = 0; i < lp_gguf_n_tensors(g); i++) {
            const struct lp_gguf_tensor *t = lp_gguf_tensor_at(g, i);
            if (t->shard != part || t->n_dims < 2) continue;
            for (uint64_t k = 0; k < lp_gguf_n_tensors(g); k++) {
                const struct lp_gguf_tensor *o = lp_gguf_tensor_at(g, k);
                if (o->shard == part || !lp_str_equal(stem_of(o), stem_of(t))) continue;
                n_same += o->type == t->type;
                n_other += o->type != t->type;
            }
        }
        if (n_other < 4 || n_same) continue;
        lp_report_say(exam->report, LP_STAGE_FILE, LP_CHECK_NOTE, "parts of one set",
                      "no matrix of %s has the type that its like have in the other parts; if the "
                      "model talks nonsense, this part may be of another quantisation of it",
                      base_name(lp_gguf_shard_path(g, part)));
        return;
    }
}

static void hparams_fault(struct lp_exam *exam, const struct lp_err *err) {
    char what[LP_WHAT_BYTES];
    if (!lp_accuse_what(err->text, what)) snprintf(what, sizeof what, "metadata");
    lp_report_say(exam->report, LP_STAGE_FILE, LP_CHECK_FAULT, "hyperparameters", "%s", err->text);
    lp_report_fault(exam->report, LP_STAGE_FILE, "hyperparameters", -1, what,
                    "%s. The file was converted wrongly or its metadata were edited: convert it "
                    "again, or set the key to what the model's config.json says.",
                    err->text);
}

static const struct lp_arch *architecture(const struct lp_gguf *gguf) {
    const struct lp_gguf_kv *kv = lp_gguf_find(gguf, "general.architecture");
    return kv && kv->type == LP_GGUF_STRING ? lp_arch_find(kv->strings[0]) : NULL;
}

// "glm-dsa, 5 layers, 23.9 MB, mostly Q8_0": the type that most bytes are in.
static void name_model(struct lp_exam *exam) {
    uint64_t bytes[LP_TYPE_COUNT] = {0}, all = 0;
    lp_type most = LP_TYPE_F32;
    char text[160];
    for (uint64_t i = 0; i < lp_gguf_n_tensors(exam->gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(exam->gguf, i);
        bytes[t->type] += t->n_bytes;
        all += t->n_bytes;
        if (bytes[t->type] > bytes[most]) most = t->type;
    }
    snprintf(text, sizeof text, "%s, %d layers, %.3g %s, mostly %s", exam->h.arch->name,
             exam->h.n_layers, all < 1000000000 ? (double)all * 1e-6 : (double)all * 1e-9,
             all < 1000000000 ? "MB" : "GB", lp_type_info(most)->name);
    lp_report_set_model(exam->report, text);
}

static lp_status check_contents(struct lp_exam *exam, struct lp_err *err) {
    struct lp_err why = {0};
    const struct lp_arch *arch = architecture(exam->gguf);
    int32_t n_accused = 0;
    if (arch) {
        n_accused = lp_check_keys(exam, arch);
        n_accused += lp_check_sizes(exam, arch);
    }
    lp_status status = lp_hparams_read(&exam->h, exam->gguf, &why);
    if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
    if (status) {
        if (!n_accused) hparams_fault(exam, &why);
        return LP_OK;
    }
    name_model(exam);
    exam->has_hparams = n_accused == 0;
    if (n_accused) return LP_OK;
    if (!lp_check_schedule(exam)) status = lp_check_binding(exam, err);
    if (!status) lp_check_metadata(exam);
    return status;
}

lp_status lp_check_file(struct lp_exam *exam, struct lp_err *err) {
    struct lp_err why = {0};
    lp_status status =
        lp_model_file_open(&exam->file, exam->options->path, exam->options->n_threads, &why);
    exam->gguf = exam->file.gguf;
    if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
    if (status) {
        container_fault(exam, &why);
        return LP_OK;
    }
    container_ok(exam);
    look_for_foreign_parts(exam);
    return check_contents(exam, err);
}
