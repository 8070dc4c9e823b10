// The report as text for a person.
#include <string.h>

#include "cli/inspect.h"

static const char *text(const json_t *object, const char *key, const char *otherwise) {
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : otherwise;
}
static long long integer(const json_t *object, const char *key) {
    return (long long)json_integer_value(json_object_get(object, key));
}

// "1.93 GB"
static const char *size_text(char *out, size_t bytes, long long n) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)n;
    size_t u = 0;
    for (; value >= 1000 && u < 4; u++) value /= 1000;
    snprintf(out, bytes, u ? "%.2f %s" : "%.0f %s", value, units[u]);
    return out;
}
#define SIZE(n) size_text((char[24]){0}, 24, n)

static void shape_text(const json_t *shape, char *out, size_t bytes) {
    size_t used = 0, i;
    json_t *dim;
    out[0] = 0;
    json_array_foreach(shape, i, dim) if (used < bytes) used += (size_t)snprintf(
        out + used, bytes - used, i ? " x %lld" : "%lld", (long long)json_integer_value(dim));
}

static void print_folder(const json_t *r, FILE *to) {
    json_t *row;
    size_t i;
    fprintf(to, "container     Hugging Face folder, %s of safetensors (%lld bytes), %lld tensors\n",
            SIZE(integer(r, "bytes")), integer(r, "bytes"), integer(r, "n_tensors"));
    json_array_foreach(json_object_get(json_object_get(r, "folder"), "ignored"), i, row)
        fprintf(to, "  ignored %lld arrays: %s\n", integer(row, "count"), text(row, "reason", ""));
}

// "sampling      temp 0.6, top_p 0.95"
static void print_sampling(const json_t *r, FILE *to) {
    const char *key;
    json_t *value;
    const char *before = "sampling      ";
    json_object_foreach(json_object_get(r, "sampling"), key, value) {
        fprintf(to, "%s%s %g", before, key, json_number_value(value));
        before = ", ";
    }
    if (before[0] == ',') fprintf(to, " (the file's own settings)\n");
}

static void print_container(const json_t *r, FILE *to) {
    const json_t *files = json_object_get(r, "files");
    json_t *file;
    size_t i, n = json_array_size(files);
    json_array_foreach(files, i, file) {
        if (n > 6 && i >= 2 && i + 2 < n) continue; // a large set: its ends
        fprintf(to, "file          %s\n", text(file, "path", ""));
    }
    if (json_is_object(json_object_get(r, "folder")))
        print_folder(r, to);
    else
        fprintf(
            to,
            "container     GGUF %lld, %zu part%s, %s (%lld bytes), alignment %lld, %lld tensors\n",
            integer(r, "gguf_version"), n, n == 1 ? "" : "s", SIZE(integer(r, "bytes")),
            integer(r, "bytes"), integer(json_array_get(files, 0), "alignment"),
            integer(r, "n_tensors"));
    fprintf(to, "architecture  %s\n", text(r, "architecture", "(none)"));
    fprintf(to, "name          %s\n", text(r, "name", "(none)"));
    double parameters = (double)integer(r, "parameters");
    fprintf(to, parameters < 1e9 ? "parameters    %.4g million\n" : "parameters    %.4g billion\n",
            parameters * (parameters < 1e9 ? 1e-6 : 1e-9));
    print_sampling(r, to);
    const char *error = text(r, "error", NULL);
    if (error) fprintf(to, "cannot run    %s\n", error);
}

static void print_value(const json_t *value, FILE *to) {
    switch (json_typeof(value)) {
    case JSON_STRING: {
        const char *s = json_string_value(value);
        size_t n = strlen(s);
        int shown = 100;
        if (n > 100)
            while (shown > 0 && ((unsigned char)s[shown] & 0xc0) == 0x80)
                shown--; // whole characters
        fprintf(to, n > 100 ? "\"%.*s\"..." : "\"%.*s\"", shown, s);
        break;
    }
    case JSON_INTEGER:
        fprintf(to, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        fprintf(to, "%g", json_real_value(value));
        break;
    case JSON_TRUE:
        fputs("true", to);
        break;
    case JSON_FALSE:
        fputs("false", to);
        break;
    default:
        fputs("not finite", to);
        break;
    }
}

static void print_metadata_list(const json_t *r, FILE *to) {
    json_t *row, *element;
    size_t i, k;
    fputs("\nmetadata (* = not used)\n", to);
    json_array_foreach(json_object_get(r, "metadata_keys"), i, row) {
        const json_t *value = json_object_get(row, "value");
        bool array = json_object_get(row, "count") != NULL;
        fprintf(to, "%c %-46s %-7s ", json_is_true(json_object_get(row, "used")) ? ' ' : '*',
                text(row, "key", ""), text(row, "type", ""));
        if (array) {
            fprintf(to, "[%lld] ", integer(row, "count"));
            json_array_foreach(value, k, element) {
                if (k == 4 && integer(row, "count") > 8) break;
                if (k) fputs(", ", to);
                print_value(element, to);
            }
            if (integer(row, "count") > (long long)k) fputs(" ...", to);
        } else
            print_value(value, to);
        fputc('\n', to);
    }
}

static void print_metadata_summary(const json_t *r, FILE *to) {
    const json_t *m = json_object_get(r, "metadata"), *ignored = json_object_get(m, "ignored");
    json_t *key;
    size_t i;
    fprintf(to, "\nmetadata: %lld keys, %lld used (--metadata lists them)\n", integer(m, "keys"),
            integer(m, "used"));
    json_array_foreach(ignored, i, key)
        fprintf(to, "%s%s%s", i ? ", " : "  not used: ", json_string_value(key),
                i + 1 == json_array_size(ignored) ? "\n" : "");
}

static void print_facts(const json_t *r, FILE *to) {
    json_t *row;
    size_t i;
    fputs("\nthe mathematics in use, and where each number comes from\n", to);
    json_array_foreach(json_object_get(r, "facts"), i, row)
        fprintf(to, "  %-38s %-14s %s\n", text(row, "name", ""), text(row, "value", ""),
                text(row, "source", ""));
}

// Runs of equal layers in one line each.
static void print_layers(const json_t *r, FILE *to) {
    const json_t *list = json_object_get(r, "layers");
    size_t n = json_array_size(list);
    fputs("\nlayers\n", to);
    for (size_t i = 0, end; i < n; i = end) {
        const json_t *first = json_array_get(list, i);
        for (end = i + 1; end < n; end++) {
            const json_t *other = json_array_get(list, end);
            if (strcmp(text(first, "indexer", ""), text(other, "indexer", "")) != 0 ||
                strcmp(text(first, "ffn", ""), text(other, "ffn", "")) != 0)
                break;
        }
        char range[48];
        snprintf(range, sizeof range, end == i + 1 ? "%zu" : "%zu-%zu", i, end - 1);
        fprintf(to, "  %-10s attention %s, indexer %s, FFN %s\n", range,
                text(first, "attention", ""), text(first, "indexer", ""), text(first, "ffn", ""));
    }
}

static void print_token(const char *label, const json_t *token, FILE *to) {
    if (json_is_object(token))
        fprintf(to, "%s%lld '%s'", label, integer(token, "id"), text(token, "text", ""));
    else
        fprintf(to, "%snone", label);
}

static void print_text(const json_t *r, FILE *to) {
    const json_t *t = json_object_get(r, "tokenizer"), *c = json_object_get(r, "chat_template");
    const char *error = text(t, "error", NULL);
    json_t *token;
    size_t i;
    fprintf(to, "\ntokenizer     %s, pre %s", text(t, "model", "(none)"), text(t, "pre", "(none)"));
    if (error)
        fprintf(to, "; cannot be used: %s\n", error);
    else {
        fprintf(to, ", %lld tokens\n", integer(t, "n_tokens"));
        print_token("  bos ", json_object_get(t, "bos"), to);
        fputs(json_is_true(json_object_get(t, "adds_bos")) ? " (added to every text)"
                                                           : " (not added)",
              to);
        print_token(", eos ", json_object_get(t, "eos"), to);
        json_array_foreach(json_object_get(t, "stop"), i, token)
            print_token(i ? ", " : "\n  stops at ", token, to);
        fputc('\n', to);
    }
    error = text(c, "error", NULL);
    if (error)
        fprintf(to, "chat template cannot be used: %s\n", error);
    else
        fprintf(to, "chat template %s\n",
                json_is_true(json_object_get(c, "present")) ? "usable" : "none");
}

static void print_groups(const json_t *r, FILE *to) {
    json_t *row;
    size_t i;
    char shape[96];
    fprintf(to, "\n%-40s %-8s %5s  %-24s %s\n", "tensors (--tensors lists them all)", "type",
            "count", "shape", "bytes");
    json_array_foreach(json_object_get(r, "tensor_groups"), i, row) {
        shape_text(json_object_get(row, "shape"), shape, sizeof shape);
        fprintf(to, "  %-38s %-8s %5lld  %-24s %s\n", text(row, "role", ""), text(row, "type", ""),
                integer(row, "count"), shape, SIZE(integer(row, "bytes")));
    }
    fprintf(to, "\n%-10s %7s %12s %12s %14s\n", "types", "tensors", "bytes", "millions",
            "bits/weight");
    json_array_foreach(json_object_get(r, "types"), i, row) fprintf(
        to, "  %-8s %7lld %12s %12.2f %14.2f\n", text(row, "type", ""), integer(row, "count"),
        SIZE(integer(row, "bytes")), (double)integer(row, "parameters") * 1e-6,
        json_real_value(json_object_get(row, "bits_per_weight")));
}

static void print_tensor_list(const json_t *r, FILE *to) {
    json_t *row;
    size_t i;
    char shape[96];
    fputs("\ntensors\n", to);
    json_array_foreach(json_object_get(r, "tensors"), i, row) {
        const char *reason = text(row, "ignored_because", NULL);
        shape_text(json_object_get(row, "shape"), shape, sizeof shape);
        fprintf(to, "  %-42s %-8s %-24s %12lld bytes%s%s\n", text(row, "name", ""),
                text(row, "type", ""), shape, integer(row, "bytes"), reason ? "  ignored: " : "",
                reason ? reason : "");
    }
}

static void print_binding(const json_t *r, FILE *to) {
    const json_t *b = json_object_get(r, "binding");
    json_t *row;
    size_t i;
    fprintf(to, "\nbinding       bound %lld of %lld", integer(b, "bound"), integer(b, "tensors"));
    fprintf(to, integer(b, "ignored") ? ", ignored %lld\n" : "\n", integer(b, "ignored"));
    json_array_foreach(json_object_get(b, "reasons"), i, row)
        fprintf(to, "  ignored %lld (%s): %s\n", integer(row, "count"), SIZE(integer(row, "bytes")),
                text(row, "reason", ""));
}

static void print_kernels(const json_t *r, FILE *to) {
    const json_t *k = json_object_get(r, "kernels");
    static const char *const parts[] = {"matmul", "attention"};
    fprintf(to, "\nkernels of the backend %s\n", text(k, "backend", ""));
    for (size_t p = 0; p < 2; p++) {
        const char *key;
        json_t *value;
        json_object_foreach(json_object_get(k, parts[p]), key, value)
            fprintf(to, "  %-9s %-14s %s\n", parts[p], key,
                    json_is_string(value) ? json_string_value(value) : "none");
    }
}

static void print_device(const json_t *d, FILE *to) {
    const json_t *fits = json_object_get(d, "fits");
    fprintf(to, "on %s: %s (routed experts %s, other weights %s), ", text(d, "device", ""),
            SIZE(integer(d, "total_bytes")), SIZE(integer(d, "expert_bytes")),
            SIZE(integer(d, "other_weight_bytes")));
    if (json_is_boolean(fits))
        fprintf(to, "%s available: %s\n", SIZE(integer(d, "available_bytes")),
                json_is_true(fits)
                    ? "it fits"
                    : "it does not fit, weights would be read from disk again and again");
    else
        fputs("how much is available is not known\n", to);
}

// Weights where a memory budget holds a part of them.
static void print_budget(const json_t *b, FILE *to) {
    fprintf(to, "  weights that every token needs      %12s\n", SIZE(integer(b, "resident_bytes")));
    fprintf(to, "  cache of %6lld experts             %12s\n", integer(b, "cache_experts"),
            SIZE(integer(b, "cache_bytes")));
    fprintf(to, "  (on disk, %6lld experts            %12s)\n", integer(b, "disk_experts"),
            SIZE(integer(b, "disk_bytes")));
}

static void print_memory(const json_t *r, FILE *to) {
    const json_t *m = json_object_get(r, "memory"), *budget = json_object_get(m, "budget");
    json_t *d;
    size_t i;
    fprintf(to,
            "\nmemory for %lld sequence%s of %lld tokens (a KV cache of %lld tokens in %s), steps "
            "of %lld\n",
            integer(m, "sequences"), integer(m, "sequences") == 1 ? "" : "s", integer(m, "context"),
            integer(m, "kv_tokens"), text(m, "kv_type", ""), integer(m, "chunk"));
    if (budget)
        print_budget(budget, to);
    else
        fprintf(to, "  weights, %-26s %12s\n",
                json_is_true(json_object_get(m, "on_device")) ? "copied to the device"
                                                              : "where the file is mapped",
                SIZE(integer(m, "mapped_bytes")));
    if (integer(m, "repacked_bytes"))
        fprintf(to, "  weights, repacked for the kernels   %12s\n",
                SIZE(integer(m, "repacked_bytes")));
    if (integer(m, "memory_bytes"))
        fprintf(to, "  weights, rearranged in memory       %12s\n",
                SIZE(integer(m, "memory_bytes")));
    fprintf(to, "  small tensors as float32            %12s\n", SIZE(integer(m, "float32_bytes")));
    fprintf(to, "  KV cache, %6lld bytes a token      %12s\n", integer(m, "kv_bytes_per_token"),
            SIZE(integer(m, "kv_bytes")));
    fprintf(to, "  buffers of a step                   %12s\n", SIZE(integer(m, "step_bytes")));
    fprintf(to, "  together                            %12s\n", SIZE(integer(m, "total_bytes")));
    json_array_foreach(json_object_get(m, "devices"), i, d) print_device(d, to);
}

// "4-7", "all" of `of` things, or "-"
static const char *range_text(const json_t *rank, const char *key, long long of, char out[40]) {
    const json_t *pair = json_object_get(rank, key);
    const long long first = json_integer_value(json_array_get(pair, 0)),
                    end = json_integer_value(json_array_get(pair, 1));
    if (end == first)
        snprintf(out, 40, "-");
    else if (end - first == of)
        snprintf(out, 40, "all");
    else
        snprintf(out, 40, "%lld-%lld", first, end - 1);
    return out;
}

static long long largest_end(const json_t *ranks, const char *key) {
    long long most = 0;
    json_t *rank;
    size_t i;
    json_array_foreach(ranks, i, rank) {
        const long long end = json_integer_value(json_array_get(json_object_get(rank, key), 1));
        if (end > most) most = end;
    }
    return most;
}

static void print_exchange(const json_t *rank, FILE *to) {
    static const char *const words[][2] = {
        {"sums", "all rows on every rank, summed over all behind attention and behind the FFN"},
        {"rows", "each rank's rows to all others behind attention, and the sums of its own back"},
        {"experts",
         "experts' rows: to the ranks of their experts, and sums back; those of a dense FFN to "
         "all ranks"}};
    const char *name = json_string_value(json_object_get(rank, "exchange"));
    for (size_t i = 0; name && i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i][0]) == 0)
            fprintf(to, "  exchanged in a layer: %s\n", words[i][1]);
}

// What a memory budget of each rank leaves in its memory.
static void print_rank_budgets(const json_t *ranks, FILE *to) {
    json_t *rank;
    size_t i;
    if (!json_object_get(json_array_get(ranks, 0), "budget")) return;
    fprintf(to, "\n%-7s %18s  %26s  %26s %12s\n", "ranks", "every token needs", "experts in memory",
            "experts of the file", "least budget");
    json_array_foreach(ranks, i, rank) {
        const json_t *b = json_object_get(rank, "budget");
        fprintf(to, "  %5lld %18s  %12lld %13s", integer(rank, "rank"),
                SIZE(integer(b, "resident_bytes")), integer(b, "cache_experts"),
                SIZE(integer(b, "cache_bytes")));
        fprintf(to, "  %12lld %13s %12s\n", integer(b, "disk_experts"),
                SIZE(integer(b, "disk_bytes")), SIZE(integer(b, "least_bytes")));
    }
}

static void print_ranks(const json_t *r, FILE *to) {
    static const struct {
        const char *key, *title;
        int width;
    } columns[] = {{"layers", "layers", 9},
                   {"heads", "heads", 9},
                   {"experts", "experts", 10},
                   {"expert_columns", "of each", 11},
                   {"vocabulary", "vocabulary", 15}};
    const json_t *ranks = json_object_get(r, "ranks");
    json_t *rank;
    size_t i;
    char out[40];
    long long kv_bytes = 0, kv_tokens = 0;
    bool data = false;
    fprintf(to, "\n%-7s %5s", "ranks", "stage");
    for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
        fprintf(to, "  %-*s", columns[c].width, columns[c].title);
    fprintf(to, "  %12s %12s\n", "weights", "KV cache");
    json_array_foreach(ranks, i, rank) {
        fprintf(to, "  %5lld %5lld", integer(rank, "rank"), integer(rank, "stage"));
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
            fprintf(to, "  %-*s", columns[c].width,
                    range_text(rank, columns[c].key, largest_end(ranks, columns[c].key), out));
        fprintf(to, "  %12s", SIZE(integer(rank, "weight_bytes")));
        fprintf(to, " %12s\n", SIZE(integer(rank, "kv_bytes")));
        kv_bytes += integer(rank, "kv_bytes");
        kv_tokens = integer(rank, "kv_tokens");
        const char *attention = json_string_value(json_object_get(rank, "attention"));
        data = attention && strcmp(attention, "data") == 0;
    }
    if (data)
        fprintf(to,
                "  attention by sequences: each rank has the cache of its own, %lld tokens; %s in "
                "all\n",
                kv_tokens, SIZE(kv_bytes));
    else
        fprintf(to, "  attention by heads: KV caches of %s in all, for %lld tokens\n",
                SIZE(kv_bytes), kv_tokens);
    print_exchange(json_array_get(ranks, 0), to);
    print_rank_budgets(ranks, to);
}

void lp_inspect_print(const json_t *r, bool sections_only, FILE *to) {
    static const struct {
        const char *key;
        void (*print)(const json_t *, FILE *);
    } sections[] = {{"facts", print_facts},     {"layers", print_layers},
                    {"tokenizer", print_text},  {"tensor_groups", print_groups},
                    {"binding", print_binding}, {"metadata", print_metadata_summary},
                    {"kernels", print_kernels}, {"memory", print_memory},
                    {"ranks", print_ranks}};
    print_container(r, to);
    for (size_t i = 0; !sections_only && i < sizeof sections / sizeof sections[0]; i++)
        if (json_object_get(r, sections[i].key)) sections[i].print(r, to);
    if (json_object_get(r, "metadata_keys")) print_metadata_list(r, to);
    if (json_object_get(r, "tensors")) print_tensor_list(r, to);
}
