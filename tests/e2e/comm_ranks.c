// What ranks say to one another, by itself: sums whose results go to the ranks of their rows, and numbers of each for
// each. Against what every rank can work out alone, as all numbers are a function of rank and place.
//
//     mpirun -n N comm_ranks [dies|stops|too-large]
//
// dies, stops: the last rank, in an exchange; the others say which, and all end with a status other than 0. too-large:
// more values than can be exchanged are refused by all, and what was to be filled stays as it was.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/comm.h"

#define MOST 100000 // values of a case

static struct lp_comm *world;
static int32_t rank, size;

static void fail(const char *what, size_t number, size_t place) {
    fprintf(stderr, "rank %d of %d: %s %zu is wrong at %zu\n", rank, size, what, number, place);
    _Exit(1);
}

static void *alloc(size_t n_bytes) {
    void *block = calloc(n_bytes + 1, 1);
    if (!block) fail("memory", n_bytes, 0);
    return block;
}

// Of very different sizes, so that their sum depends on its order.
static float value(int32_t from, size_t i) {
    const uint32_t bits = (uint32_t)(i * 2654435761u) ^ ((uint32_t)from * 0x9e3779b9u);
    return (float)(int32_t)(bits | 1) * ((bits >> 7) % 3 == 0 ? 1e-7f : 1.0f);
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// ---- sums

enum division { EVEN, UNEVEN, SOME_HAVE_NONE, ONE_HAS_ALL, NOBODY_HAS_ANY, N_DIVISIONS };

static size_t share_of(enum division division, int32_t of, size_t n) {
    switch (division) {
    case EVEN:
        return n / (size_t)size;
    case UNEVEN:
        return n * (size_t)(of + 1) / (size_t)(size * size);
    case SOME_HAVE_NONE:
        return of % 2 ? n / (size_t)size : 0;
    case ONE_HAS_ALL:
        return of == size - 1 ? n : 0;
    default:
        return 0;
    }
}

static void sums(enum division division, size_t n) {
    size_t *runs = alloc((size_t)size * sizeof *runs), all = 0, first = 0;
    for (int32_t i = 0; i < size; i++) {
        runs[i] = share_of(division, i, n);
        if (i < rank) first += runs[i];
        all += runs[i];
    }
    float *x = alloc(all * sizeof *x), *whole = alloc(all * sizeof *whole);
    for (size_t i = 0; i < all; i++) x[i] = whole[i] = value(rank, i);
    const uint64_t before = lp_comm_sent_bytes(world);
    lp_comm_sum_parts(world, x, runs);
    const uint64_t sent = lp_comm_sent_bytes(world) - before;
    lp_comm_sum(world, whole, all);
    for (size_t i = first; i < first + runs[rank]; i++) {
        float sum = value(0, i);
        for (int32_t r = 1; r < size; r++) sum += value(r, i);
        if (bits_of(x[i]) != bits_of(sum)) fail("a sum to its rank, of division", division, i);
        if (bits_of(x[i]) != bits_of(whole[i])) fail("a sum to all, of division", division, i);
    }
    // Even rows: a rank gives away each of the others' once.
    if (division == EVEN && sent != (all - runs[rank]) * sizeof *x) fail("bytes of", n, sent);
    free(x);
    free(whole);
    free(runs);
}

// ---- exchanges

static size_t given(int32_t from, int32_t to, size_t scale) {
    return (size_t)((from * 7 + to * 3) % 4) * scale; // to some nothing, to itself some
}

static void exchange(size_t scale) {
    size_t *n_out = alloc((size_t)size * sizeof *n_out), *n_in = alloc((size_t)size * sizeof *n_in),
           out_sum = 0, in_sum = 0, at = 0;
    for (int32_t i = 0; i < size; i++) {
        out_sum += n_out[i] = given(rank, i, scale);
        in_sum += n_in[i] = given(i, rank, scale);
    }
    float *out = alloc(out_sum * sizeof *out), *in = alloc(in_sum * sizeof *in);
    for (int32_t to = 0; to < size; to++)
        for (size_t i = 0; i < n_out[to]; i++) out[at++] = value(rank * size + to, i);
    lp_comm_exchange(world, out, n_out, in, n_in);
    at = 0;
    for (int32_t from = 0; from < size; from++)
        for (size_t i = 0; i < n_in[from]; i++, at++)
            if (bits_of(in[at]) != bits_of(value(from * size + rank, i)))
                fail("an exchange of", scale, at);
    free(out);
    free(in);
    free(n_out);
    free(n_in);
}

// ---- what goes wrong

static void say_failure(const char *what) {
    struct lp_err err;
    if (!lp_comm_failed(world, &err)) fail(what, 0, 0);
    fprintf(stderr, "rank %d: %s\n", rank, err.text);
    fflush(stderr);
}

static void loses(int number) {
    if (rank == size - 1) raise(number);
    size_t *n = alloc((size_t)size * sizeof *n);
    for (int32_t i = 0; i < size; i++) n[i] = 1;
    float *out = alloc((size_t)size * sizeof *out), *in = alloc((size_t)size * sizeof *in);
    lp_comm_exchange(world, out, n, in, n);
    say_failure("an exchange without a rank");
    free(out);
    free(in);
    free(n);
}

static void refuses(void) {
    size_t *n = alloc((size_t)size * sizeof *n);
    float x = 7;
    for (int32_t i = 0; i < size; i++) n[i] = (size_t)1 << 31;
    lp_comm_sum_parts(world, &x, n);
    say_failure("a sum that is too large");
    n[0] = SIZE_MAX;
    lp_comm_exchange(world, &x, n, &x, n); // R1: not made
    if (x != 7) fail("a refused exchange", 0, 0);
    free(n);
}

int main(int argc, char **argv) {
    struct lp_err err;
    const char *mode = argc > 1 ? argv[1] : "";
    signal(SIGTERM, SIG_IGN); // of mpirun, where a rank has gone: who is left shall say so
    if (lp_comm_join(&world, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (!world) {
        fprintf(stderr, "this is one process; start several with mpirun\n");
        return 2;
    }
    rank = lp_comm_rank(world);
    size = lp_comm_size(world);
    lp_comm_set_limit(world, 5);
    static const size_t lengths[] = {1, 60, 4097, 16384, 16385, 30000, MOST};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !*mode; i++)
        for (enum division d = EVEN; d < N_DIVISIONS; d++) sums(d, lengths[i]);
    for (size_t scale = 0; scale <= 30000 && !*mode; scale = scale * 7 + 1) exchange(scale);
    if (strcmp(mode, "dies") == 0) loses(SIGKILL);
    if (strcmp(mode, "stops") == 0) loses(SIGSTOP);
    if (strcmp(mode, "too-large") == 0) refuses();
    if (!*mode && lp_comm_failed(world, &err)) {
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
        return 1;
    }
    if (!*mode && rank == 0) printf("sums and exchanges of %d ranks are right\n", size);
    lp_comm_leave(world);
    return 0;
}
