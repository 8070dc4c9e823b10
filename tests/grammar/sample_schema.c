// Writes random texts that a grammar accepts, for checks by other programs.
//
//     sample_schema KIND N SEED < sources.txt
//
// Each line of the input is a source (KIND as in grammar.h: json_schema, regex, ...). For each, one
// line comes out: a JSON array of N texts, or {"status": "...", "error": "..."}. A text that does
// not come to an end in time is null.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "grammar/grammar.h"

#define MAX_TEXT_BYTES 3000
#define HURRY_BYTES 200 // from here on what ends something is preferred

static uint64_t state;

static uint32_t draw(uint32_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % n);
}

// A vocabulary of the 256 single bytes.
static bool byte_of(void *user, int32_t id, struct lp_bytes *out) {
    (void)user;
    return lp_bytes_append(out, &(char){(char)id}, 1);
}

static bool is_allowed(const uint32_t *mask, int byte) {
    return mask[byte / 32] >> (byte % 32) & 1;
}

// One of the allowed bytes, or -1. What closes something comes more often than by chance.
static int choose(const uint32_t *mask, size_t written) {
    static const char closing[] = "\"}]";
    if (draw(100) < (written > HURRY_BYTES ? 95 : 15))
        for (const char *c = closing; *c; c++)
            if (is_allowed(mask, (unsigned char)*c)) return (unsigned char)*c;
    int allowed[256], n = 0;
    for (int byte = 0; byte < 256; byte++)
        if (is_allowed(mask, byte)) allowed[n++] = byte;
    return n ? allowed[draw((uint32_t)n)] : -1;
}

// False: no end was reached, or the grammar led nowhere (*is_stuck).
static bool walk(struct lp_grammar *grammar, struct lp_bytes *text, bool *is_stuck) {
    struct lp_matcher *matcher;
    if (lp_matcher_new(&matcher, grammar, NULL)) return false;
    bool ended = false;
    *is_stuck = false;
    lp_bytes_clear(text);
    while (!ended && text->len < MAX_TEXT_BYTES) {
        const uint32_t *mask = lp_matcher_mask(matcher);
        int byte = mask ? choose(mask, text->len) : -1;
        bool can_end = lp_matcher_can_end(matcher);
        ended = can_end && (byte < 0 || text->len > HURRY_BYTES || draw(2));
        if (ended) break;
        *is_stuck = mask && byte < 0;
        if (byte < 0 || !lp_matcher_accept(matcher, byte)) break;
        lp_bytes_append(text, &(char){(char)byte}, 1);
    }
    lp_matcher_free(matcher);
    return ended;
}

static json_t *sample(struct lp_grammar *grammar, int n) {
    json_t *texts = json_array();
    struct lp_bytes text = {0};
    for (int i = 0; i < n; i++) {
        bool ended = false, is_stuck = false;
        for (int attempt = 0; attempt < 5 && !ended && !is_stuck; attempt++)
            ended = walk(grammar, &text, &is_stuck);
        if (is_stuck) {
            json_decref(texts);
            texts = json_pack("{s:s, s:s%}", "status", "STUCK", "error", text.data ? text.data : "",
                              text.len);
            break;
        }
        struct lp_str view = lp_bytes_view(&text);
        json_array_append_new(texts, ended ? json_stringn(view.data, view.len) : json_null());
    }
    lp_bytes_release(&text);
    return texts;
}

int main(int argc, char **argv) {
    enum lp_grammar_kind kind;
    if (argc != 4 || !lp_grammar_kind_from_name(argv[1], &kind)) {
        fprintf(stderr, "usage: sample_schema KIND N SEED < sources\n");
        return 2;
    }
    int n = atoi(argv[2]);
    state = strtoull(argv[3], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
    struct lp_token_trie *trie;
    bool is_control[256] = {false};
    if (lp_token_trie_new(&trie, 256, byte_of, NULL, is_control, NULL)) return 1;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t len;
    while ((len = getline(&line, &capacity, stdin)) > 0) {
        struct lp_str source = {line, (size_t)len - (line[len - 1] == '\n')};
        struct lp_grammar *grammar;
        struct lp_err err = {0};
        lp_status status = lp_grammar_compile(&grammar, kind, source, trie, NULL, NULL, &err);
        json_t *out =
            status ? json_pack("{s:s, s:s}", "status", lp_status_name(status), "error", err.text)
                   : sample(grammar, n);
        char *dump = json_dumps(out, JSON_COMPACT);
        puts(dump ? dump : "null");
        free(dump);
        json_decref(out);
        lp_grammar_put(grammar);
    }
    free(line);
    lp_token_trie_free(trie);
    return 0;
}
