// limpid tokenize: text to a JSON array of ids, or the other way.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "cli/args.h"
#include "cli/find_model.h"
#include "cli/ids.h"

#define MAX_INPUT ((size_t)1 << 30)

static bool read_all(FILE *file, struct lp_bytes *out) {
    char piece[65536];
    size_t n;
    out->max_bytes = MAX_INPUT;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0)
        if (!lp_bytes_append(out, piece, n)) return false;
    return !ferror(file) && lp_bytes_append(out, "", 0);
}

static int encode(const limpid_model *model, const struct lp_bytes *text, bool special, bool bos) {
    int32_t *ids;
    size_t n;
    limpid_error err;
    unsigned flags = (special ? LIMPID_SPECIAL : 0) | (bos ? LIMPID_BOS : 0);
    if (limpid_tokenize(model, text->data, text->len, flags, &ids, &n, &err)) return lp_fail(&err);
    putchar('[');
    for (size_t i = 0; i < n; i++) printf(i ? ", %d" : "%d", ids[i]);
    puts("]");
    limpid_free(ids);
    return LP_EXIT_OK;
}

static int decode(const limpid_model *model, const struct lp_bytes *text) {
    int32_t *ids;
    size_t n, len;
    limpid_error err;
    char *out;
    if (strlen(text->data) != text->len) return lp_fail_text("--decode: the text holds a NUL byte");
    int parsed = lp_ids_parse(text->data, "--decode", &ids, &n);
    if (parsed) return parsed;
    limpid_status status = limpid_detokenize(model, ids, n, false, &out, &len, &err);
    lp_free(ids);
    if (status) return lp_fail(&err);
    fwrite(out, 1, len, stdout);
    putchar('\n');
    limpid_free(out);
    return LP_EXIT_OK;
}

static int run(int argc, char **argv) {
    bool no_special = false, reverse = false, bos = false;
    const char *positional[2] = {NULL, NULL}, *log = NULL;
    const struct lp_option options[] = {
        {"--no-special", LP_OPT_FLAG, &no_special, NULL,
         "take texts of control tokens as plain text"},
        {"--bos", LP_OPT_FLAG, &bos, NULL,
         "add the tokens that the file says every text begins or ends with"},
        {"--decode", LP_OPT_FLAG, &reverse, NULL,
         "ids (a JSON array, or separated by commas or spaces) to text"},
        {"--log", LP_OPT_TEXT, &log, "LEVEL", "error, warn (default), info, debug"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_tokenize, options,
                               sizeof options / sizeof options[0], positional, 2);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (!positional[0]) return lp_usage(&lp_cmd_tokenize, "MODEL is needed");
    struct lp_bytes text = {0};
    errno = 0;
    bool ok = positional[1] ? lp_bytes_puts(&text, positional[1]) : read_all(stdin, &text);
    if (!ok) {
        lp_bytes_release(&text);
        return lp_fail_text("cannot read the text: %s", errno ? strerror(errno) : "it is too long");
    }
    limpid_model *model = NULL;
    limpid_error err;
    limpid_model_options o = limpid_model_default_options();
    o.vocab_only = true;
    char *path = NULL;
    if (log && limpid_set_log_level(log, &err)) status = lp_fail(&err);
    if (!status) status = lp_find_model(&path, positional[0], &lp_cmd_tokenize);
    if (!status && limpid_model_open(&model, path, &o, &err)) status = lp_fail(&err);
    lp_free(path);
    if (!status) status = reverse ? decode(model, &text) : encode(model, &text, !no_special, bos);
    limpid_model_close(model);
    lp_bytes_release(&text);
    return status;
}

const struct lp_command lp_cmd_tokenize = {
    "tokenize", "MODEL [--no-special] [--bos] [--decode] [TEXT]",
    "text (or standard input) to a JSON array of token ids", run};
