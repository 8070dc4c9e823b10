// The forms that are known:
//
//     ORG/NAME, hf.co/ORG/NAME                    a repository of the Hugging Face hub
//     https://huggingface.co/ORG/NAME/...         the same, maybe with a file in it
//     http://..., https://...                     any other file
//     NAME:TAG                                    how other programs name models
#include "cli/remote_name.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

#include "cli/model_folder.h"
#include "cli/shell_quote.h"

#define NAME_BYTES 128
#define SUFFIX_BYTES 20 // "-00001-of-00003.gguf"

// One component of a hub's name at the beginning of text; returns its length, 0 if there is none.
static size_t component(const char *text) {
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("-_.", text[n]))) n++;
    return n < NAME_BYTES && text[0] != '.' && text[0] != '-' ? n : 0;
}

// ORG/NAME and what stands behind it.
static const char *hub_name(const char *text, char org[NAME_BYTES], char name[NAME_BYTES]) {
    size_t n_org = component(text), n_name;
    if (!n_org || text[n_org] != '/' || !(n_name = component(text + n_org + 1))) return NULL;
    snprintf(org, NAME_BYTES, "%.*s", (int)n_org, text);
    snprintf(name, NAME_BYTES, "%.*s", (int)n_name, text + n_org + 1);
    return text + n_org + 1 + n_name;
}

// The pattern that downloads a file, with all parts where it is one of a set.
static void add_pattern(struct lp_bytes *text, const char *file, size_t n) {
    const char *part = n > SUFFIX_BYTES ? file + n - SUFFIX_BYTES : "";
    struct lp_bytes pattern = {0};
    if (part[0] == '-' && strncmp(part + 6, "-of-", 4) == 0)
        lp_bytes_printf(&pattern, "%.*s-*.gguf", (int)(n - SUFFIX_BYTES), file);
    else
        lp_bytes_append(&pattern, file, n);
    if (pattern.data) lp_shell_quote(text, pattern.data);
    lp_bytes_release(&pattern);
}

// What of a repository is wanted where no file of it is named.
static const char *wanted_files(enum lp_model_kind kind) {
    return kind == LP_MODEL_PRECISE
               ? "its GGUF files first (in BF16 or F16, which have lost nothing)"
           : kind == LP_MODEL_FOLDER ? "it first"
                                     : "its GGUF files first (of the quantisation that you want)";
}

static void advise_hub(struct lp_bytes *text, const char *org, const char *name, const char *rest,
                       const struct lp_model_wish *wish) {
    static const char *const before_file[] = {"/resolve/main/", "/blob/main/", "/tree/main/"};
    const char *file = "";
    for (size_t i = 0; i < 3; i++)
        if (strncmp(rest, before_file[i], strlen(before_file[i])) == 0)
            file = rest + strlen(before_file[i]);
    size_t n_file = strcspn(file, "?#");
    bool named = n_file > 5 && strncasecmp(file + n_file - 5, ".gguf", 5) == 0;
    lp_bytes_printf(text,
                    "%s/%s is not a file or folder here; if it is a repository of a hub, download "
                    "%s:\n    hf download %s/%s",
                    org, name, named ? "its GGUF files first" : wanted_files(wish->kind), org,
                    name);
    if (named) {
        lp_bytes_puts(text, " --include ");
        add_pattern(text, file, n_file);
    } else if (wish->kind != LP_MODEL_FOLDER)
        lp_bytes_printf(text, " --include '*%s*.gguf'",
                        wish->kind == LP_MODEL_PRECISE ? "BF16" : "Q4_K_M");
    lp_bytes_printf(text, " --local-dir %s", name);
    lp_next_command_add(text, wish, name);
    lp_bytes_puts(text, "\n(older versions of the tool: huggingface-cli download)");
}

static void advise_download(struct lp_bytes *text, const char *url,
                            const struct lp_model_wish *wish) {
    size_t n = strcspn(url, "?#");
    const char *file = url + n;
    while (file > url && file[-1] != '/') file--;
    struct lp_bytes given = {0};
    lp_bytes_append(&given, file, (size_t)(url + n - file));
    const char *name = given.data && lp_name_ends(given.data, ".gguf") ? given.data : "model.gguf";
    lp_bytes_puts(text, "limpid opens files of this machine, no addresses; download it first:\n"
                        "    curl -L -o ");
    lp_shell_quote_path(text, name);
    lp_bytes_puts(text, " ");
    lp_shell_quote(text, url);
    lp_next_command_add(text, wish, name);
    lp_bytes_release(&given);
}

static const char *behind(const char *text, const char *prefix) {
    size_t n = strlen(prefix);
    return strncasecmp(text, prefix, n) == 0 ? text + n : NULL;
}

// ORG/NAME may also be a mistyped path: it is one where ORG is a folder, or NAME ends in .gguf.
static bool is_path(const char *org, const char *name, const char *rest) {
    struct stat st;
    return *rest || lp_name_ends(name, ".gguf") || stat(org, &st) == 0;
}

bool lp_remote_advice(struct lp_bytes *text, const char *name, const struct lp_model_wish *wish) {
    static const char *const hubs[] = {"https://huggingface.co/",
                                       "http://huggingface.co/",
                                       "https://hf.co/",
                                       "huggingface.co/",
                                       "hf.co/",
                                       "hf://"};
    char org[NAME_BYTES], model[NAME_BYTES];
    const char *rest;
    for (size_t i = 0; i < sizeof hubs / sizeof hubs[0]; i++) {
        const char *path = behind(name, hubs[i]);
        if (!path || !(rest = hub_name(path, org, model))) continue;
        advise_hub(text, org, model, rest, wish);
        return true;
    }
    if (behind(name, "https://") || behind(name, "http://")) {
        advise_download(text, name, wish);
        return true;
    }
    rest = hub_name(name, org, model);
    if (rest && rest[0] == ':') rest = ""; // ORG/NAME:TAG
    if (rest && !is_path(org, model, rest)) {
        advise_hub(text, org, model, rest, wish);
        return true;
    }
    size_t n = component(name);
    if (n && name[n] == ':' && component(name + n + 1) == strlen(name + n + 1)) {
        lp_bytes_printf(text, "limpid knows no models by name (%s); download %s and name it:", name,
                        wish->kind == LP_MODEL_FOLDER ? "its Hugging Face folder" : "a GGUF file");
        lp_next_command_add_open(text, wish);
        return true;
    }
    return false;
}
