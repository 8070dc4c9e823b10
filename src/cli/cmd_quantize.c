// limpid quantize: a model with its matrices in smaller types, by a preset or rules.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clean.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/args.h"
#include "cli/find_model.h"
#include "cli/wrote.h"
#include "files/quantize_file.h"

struct settings {
    struct lp_quantize_options plan;
    const char *output;
    int64_t threads;
    bool force, dry_run, list;
};

static const char *type_name(lp_type type) {
    return lp_type_info((uint32_t)type)->name;
}

static void print_shape(const struct lp_source_tensor *t, char *out, size_t n) {
    size_t len = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < t->n_dims && len < n; i++)
        len += (size_t)snprintf(out + len, n - len, i ? " x %llu" : "%llu",
                                (unsigned long long)t->ne[i]);
}

static const char *why_text(const struct lp_quant_item *item) {
    if (item->to != item->wanted) return "rows do not divide";
    if (item->copied) return "as it is";
    return item->why == LP_WHY_RULE ? "rule" : "";
}

static void print_items(const struct lp_quant_plan *plan) {
    char shape[96], name[128];
    printf("%-44s %-24s %-6s %-6s %15s\n", "tensor", "shape", "from", "to", "bytes");
    for (uint64_t i = 0; i < plan->n_items; i++) {
        const struct lp_quant_item *item = &plan->items[i];
        print_shape(item->tensor, shape, sizeof shape);
        printf("%-44s %-24s %-6s %-6s %15llu%s%s\n",
               lp_clean_text(name, sizeof name, item->tensor->name), shape,
               type_name(item->tensor->type), type_name(item->to),
               (unsigned long long)item->n_bytes, *why_text(item) ? "  " : "", why_text(item));
    }
}

static void print_types(const struct lp_quant_plan *plan) {
    uint64_t n[LP_TYPE_COUNT] = {0}, bytes[LP_TYPE_COUNT] = {0};
    for (uint64_t i = 0; i < plan->n_items; i++) {
        n[plan->items[i].to]++;
        bytes[plan->items[i].to] += plan->items[i].n_bytes;
    }
    for (int t = 0; t < LP_TYPE_COUNT; t++)
        if (n[t])
            printf("%-6s %6llu tensors %15llu bytes\n", type_name((lp_type)t),
                   (unsigned long long)n[t], (unsigned long long)bytes[t]);
}

static double bits_per_weight(const struct lp_quant_plan *plan) {
    return plan->n_values ? 8.0 * (double)plan->n_bytes / (double)plan->n_values : 0;
}

static void print_dry(const struct lp_quant_plan *plan, int64_t threads) {
    print_items(plan);
    putchar('\n');
    print_types(plan);
    printf("%-6s %6llu tensors %15llu bytes, %.2f bits per weight; from %llu bytes\n", "total",
           (unsigned long long)plan->n_items, (unsigned long long)plan->n_bytes,
           bits_per_weight(plan), (unsigned long long)plan->source.n_bytes);
    printf("file   %llu bytes; buffers of %.0f MB in memory\n",
           (unsigned long long)lp_gguf_writer_total(plan->source.writer),
           (double)lp_quantize_buffer_bytes(plan, (int)threads) * 1e-6);
}

// Up to three names of matrices that would use importances and have none.
static void tell_unimportant(const struct lp_quant_plan *plan) {
    char name[128];
    uint64_t shown = 0;
    fprintf(stderr, "limpid: no importances for %llu of the matrices:",
            (unsigned long long)plan->n_unimportant);
    for (uint64_t i = 0; i < plan->n_items && shown < 3; i++) {
        const struct lp_quant_item *item = &plan->items[i];
        if (item->importance || !lp_quant_uses_importance(item)) continue;
        fprintf(stderr, "%s %s", shown++ ? "," : "",
                lp_clean_text(name, sizeof name, item->tensor->name));
    }
    fprintf(stderr, "%s\n", plan->n_unimportant > shown ? ", ..." : "");
}

static void tell(const struct lp_quant_plan *plan) {
    if (plan->n_fallback)
        fprintf(stderr,
                "limpid: %llu tensors have rows that are no multiple of their type's block and get "
                "the next type that takes them (--dry-run lists them)\n",
                (unsigned long long)plan->n_fallback);
    if (plan->n_lossy)
        fprintf(stderr,
                "limpid: %llu tensors come from a type that had lost much already: the result has "
                "the errors of both\n",
                (unsigned long long)plan->n_lossy);
    if (plan->n_dropped)
        fprintf(stderr, "limpid: %llu tensors of factors are multiplied into their weights\n",
                (unsigned long long)plan->n_dropped);
    if (plan->n_unimportant) tell_unimportant(plan);
    if (plan->n_unmet)
        fprintf(stderr,
                "limpid: the importance matrix knows nothing of %llu of %llu matrices (experts "
                "that no token chose); they are quantised without\n",
                (unsigned long long)plan->n_unmet, (unsigned long long)plan->n_experts);
}

static int write_file(const struct settings *s, const struct lp_quant_plan *plan) {
    struct lp_err err;
    uint64_t start = lp_clock_ns();
    if (lp_quantize_file(plan, s->output, (int)s->threads, s->force, &err))
        return lp_fail_text("%s", err.text);
    double seconds = (double)(lp_clock_ns() - start) * 1e-9;
    lp_wrote("wrote", s->output, plan->n_items, lp_gguf_writer_total(plan->source.writer));
    printf(", %s, %.2f bits per weight", lp_quant_preset_name(plan->preset), bits_per_weight(plan));
    lp_wrote_time(seconds, plan->source.n_bytes, " of the source");
    lp_wrote_memory();
    putchar('\n');
    return LP_EXIT_OK;
}

static int print_presets(void) {
    const struct lp_quant_preset *p;
    for (size_t i = 0; (p = lp_quant_preset_at(i)); i++)
        printf("%-8s %s\n", lp_quant_preset_name(p), lp_quant_preset_summary(p));
    return LP_EXIT_OK;
}

// The model itself is lp_new_file's to check.
static int check_output(const struct settings *s) {
    if (s->dry_run ||
        !(lp_file_is_same(s->output, s->plan.rules) || lp_file_is_same(s->output, s->plan.imatrix)))
        return LP_EXIT_OK;
    return lp_fail_text("%s is read here, and would be written over; name another file", s->output);
}

static int quantize(struct settings *s, int argc, char **argv) {
    const struct lp_model_wish wish = {&lp_cmd_quantize, s->plan.input, argc, argv,
                                       LP_MODEL_PRECISE};
    struct lp_quant_plan plan;
    struct lp_err err;
    char *found = NULL;
    int status = check_output(s);
    if (!status) status = lp_find_model_for(&found, &wish);
    if (status) return status;
    s->plan.input = found;
    if (lp_quant_plan_make(&plan, &s->plan, &err))
        status = lp_fail_text("%s", err.text);
    else if (s->dry_run) {
        tell(&plan);
        print_dry(&plan, s->threads);
    } else {
        tell(&plan);
        status = write_file(s, &plan);
    }
    lp_quant_plan_release(&plan);
    lp_free(found);
    return status;
}

// "IN OUT PRESET", or with --dry-run "IN PRESET" too.
static int take_names(struct settings *s, const char **names) {
    s->plan.input = names[0];
    s->output = names[1];
    s->plan.preset = names[2];
    if (s->dry_run && names[1] && !names[2]) s->plan.preset = names[1];
    if (!s->plan.preset)
        return lp_usage(&lp_cmd_quantize, "IN, OUT.gguf and PRESET are needed; presets: %s",
                        lp_quant_preset_list());
    if (!lp_quant_preset_find(s->plan.preset))
        return lp_usage(&lp_cmd_quantize, "there is no preset '%s'; there are %s", s->plan.preset,
                        lp_quant_preset_list());
    return lp_check_threads(&lp_cmd_quantize, s->threads);
}

static int run(int argc, char **argv) {
    struct settings s = {0};
    const char *names[3] = {NULL, NULL, NULL};
    const struct lp_option options[] = {
        {"--rules", LP_OPT_TEXT, &s.plan.rules, "FILE",
         "types of tensors by name, over the preset: lines PATTERN [layers A-B] = TYPE"},
        {"--imatrix", LP_OPT_TEXT, &s.plan.imatrix, "FILE",
         "importances of columns (GGUF or the older form; limpid imatrix makes one)"},
        {"--pure", LP_OPT_FLAG, &s.plan.pure, NULL, "the preset's own type for every matrix"},
        {"--allow-requantize", LP_OPT_FLAG, &s.plan.allow_requantize, NULL,
         "from types below Q8_0 too: the result has the errors of both"},
        {"--dry-run", LP_OPT_FLAG, &s.dry_run, NULL,
         "print the table of tensors and sizes, write nothing"},
        {"--threads", LP_OPT_INT, &s.threads, "N",
         "threads; default: a physical core each. Memory: about 10 MB for each"},
        {"--force", LP_OPT_FLAG, &s.force, NULL, "write over OUT.gguf if it exists"},
        {"--list", LP_OPT_FLAG, &s.list, NULL, "print the presets"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_quantize, options,
                               sizeof options / sizeof options[0], names, 3);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (s.list) return print_presets();
    status = take_names(&s, names);
    return status ? status : quantize(&s, argc, argv);
}

const struct lp_command lp_cmd_quantize = {
    "quantize", "IN OUT.gguf PRESET [--rules FILE] [--imatrix FILE] [--dry-run] [--force]",
    "writes a model with its matrices in smaller types (--list: the presets)", run};
