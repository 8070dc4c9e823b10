#include "cli/diff_print.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define N_WORST 12
#define N_KEYS 24

static const char *text(const json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "-";
}

static double real(const json_t *object, const char *key, double otherwise) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static long long integer(const json_t *object, const char *key) {
    return (long long)json_integer_value(json_object_get(object, key));
}

// Where it is null, the value is not finite.
static void print_figure(const json_t *object, const char *key, const char *format, FILE *to) {
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value))
        fprintf(to, format, json_number_value(value));
    else
        fputs("  not finite", to);
}

static bool has_state(const json_t *row, const char *state) {
    return strcmp(text(row, "state"), state) == 0;
}

static void print_keys(const json_t *r, bool all, FILE *to) {
    const json_t *keys = json_object_get(r, "keys");
    json_t *row;
    size_t i, n = json_array_size(keys);
    fprintf(to, "metadata   %lld keys are equal, %zu differ\n", integer(r, "equal_keys"), n);
    json_array_foreach(keys, i, row) {
        if (!all && i == N_KEYS) {
            fprintf(to, "  and %zu more (--tensors lists everything)\n", n - i);
            break;
        }
        fprintf(to, "  %-44s A %s   B %s\n", text(row, "key"), text(row, "a"), text(row, "b"));
    }
}

struct counts {
    size_t n, equal, different, shape, only_a, only_b, types;
};

static struct counts count(const json_t *tensors) {
    struct counts c = {0};
    json_t *row;
    size_t i;
    json_array_foreach(tensors, i, row) {
        c.n++;
        c.equal += has_state(row, "equal");
        c.different += has_state(row, "different");
        c.shape += has_state(row, "shape");
        c.only_a += has_state(row, "only_a");
        c.only_b += has_state(row, "only_b");
        c.types += strcmp(text(row, "type_a"), text(row, "type_b")) != 0 &&
                   !has_state(row, "only_a") && !has_state(row, "only_b");
    }
    return c;
}

static void print_shape(const json_t *shape, FILE *to) {
    json_t *dim;
    size_t i;
    json_array_foreach(shape, i, dim)
        fprintf(to, i ? " x %lld" : "%lld", (long long)json_integer_value(dim));
}

static void print_values(const json_t *row, FILE *to) {
    if (!json_is_number(json_object_get(row, "rms")))
        fputs("  not compared", to);
    else
        fprintf(to, "  %.2e  %.9f  %.2e", real(row, "rms", 0), real(row, "cosine", 0),
                real(row, "largest", 0));
    if (integer(row, "not_finite"))
        fprintf(to, "  %lld values not finite in one of them", integer(row, "not_finite"));
}

static void print_tensor(const json_t *row, FILE *to) {
    fprintf(to, "  %-38s %-8s %-8s", text(row, "name"), text(row, "type_a"), text(row, "type_b"));
    if (has_state(row, "only_a"))
        fputs("  in A only", to);
    else if (has_state(row, "only_b"))
        fputs("  in B only", to);
    else if (has_state(row, "shape")) {
        fputs("  A ", to);
        print_shape(json_object_get(row, "shape_a"), to);
        fputs(", B ", to);
        print_shape(json_object_get(row, "shape_b"), to);
    } else if (has_state(row, "equal"))
        fputs("  equal", to);
    else
        print_values(row, to);
    fputc('\n', to);
}

// By what is most wrong with it: what cannot be compared comes before all errors; -1: nothing.
static double badness(const json_t *row) {
    if (has_state(row, "shape")) return 4e9;
    if (has_state(row, "only_a") || has_state(row, "only_b")) return 3e9;
    if (integer(row, "not_finite")) return 2e9;
    if (has_state(row, "different")) return real(row, "rms", 1e9);
    return -1;
}

static int by_badness(const void *a, const void *b) {
    double x = badness(*(json_t *const *)a), y = badness(*(json_t *const *)b);
    return (x < y) - (x > y);
}

static void print_worst(const json_t *tensors, FILE *to) {
    size_t n = json_array_size(tensors), shown = 0, i;
    json_t **rows = lp_alloc(n, sizeof *rows), *row;
    if (!rows) {
        fputs("  out of memory: the worst tensors\n", to);
        return;
    }
    json_array_foreach(tensors, i, row) rows[i] = row;
    qsort(rows, n, sizeof *rows, by_badness);
    for (i = 0; i < n && badness(rows[i]) >= 0; i++)
        if (shown < N_WORST) {
            print_tensor(rows[i], to);
            shown++;
        }
    if (i > shown) fprintf(to, "  and %zu more (--tensors lists all)\n", i - shown);
    lp_free(rows);
}

static void print_tensors(const json_t *r, bool all, FILE *to) {
    const json_t *tensors = json_object_get(r, "tensors");
    struct counts c = count(tensors);
    json_t *row;
    size_t i;
    fprintf(to,
            "tensors    %zu: %zu equal, %zu with other values, %zu of another shape, %zu in A "
            "only, %zu in B only; %zu of another type\n",
            c.n, c.equal, c.different, c.shape, c.only_a, c.only_b, c.types);
    if (c.n == c.equal && !all) return;
    fputs("  name                                   type A   type B    rms error cosine       "
          "largest\n",
          to);
    if (!all) {
        print_worst(tensors, to);
        return;
    }
    json_array_foreach(tensors, i, row) print_tensor(row, to);
}

static void print_run(const json_t *run, FILE *to) {
    json_t *row;
    size_t i;
    if (!run) return;
    fprintf(to, "prompt     %lld tokens; the residual stream after each layer, B against A\n",
            integer(run, "tokens"));
    fputs("  layer       rms error  cosine       worst token\n", to);
    json_array_foreach(json_object_get(run, "layers"), i, row) {
        char name[24] = "embeddings";
        if (integer(row, "layer") >= 0) snprintf(name, sizeof name, "%lld", integer(row, "layer"));
        fprintf(to, "  %-10s", name);
        print_figure(row, "rms", "  %.2e ", to);
        print_figure(row, "cosine", "  %.9f", to);
        print_figure(row, "worst_cosine", "  %.9f", to);
        fputc('\n', to);
    }
    if (integer(run, "jump_layer") >= 0) {
        fprintf(to, "  the error grows most at layer %lld, by a factor of",
                integer(run, "jump_layer"));
        print_figure(run, "jump", " %.1f\n", to);
    }
    fputs("next token KL(A || B)", to);
    print_figure(run, "kl", " %.3g nats on average", to);
    print_figure(run, "max_kl", ", %.3g at most", to);
    fprintf(to, "; the most probable token is the same at %.1f %% of the places\n",
            100 * real(run, "same_top", 0));
}

void lp_diff_print(const json_t *r, bool all, FILE *to) {
    fprintf(to, "A          %s\nB          %s\n", text(r, "a"), text(r, "b"));
    print_keys(r, all, to);
    print_tensors(r, all, to);
    print_run(json_object_get(r, "prompt"), to);
    if (json_is_true(json_object_get(r, "same"))) fputs("A and B are the same model\n", to);
}
