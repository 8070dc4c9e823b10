// A table of what a name can be that is no file, and a few questions to the file system.
#include "cli/find_model.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/model_folder.h"
#include "cli/near_name.h"
#include "cli/remote_name.h"
#include "cli/shell_quote.h"
#include "cli/size_text.h"
#include "hf/hf_folder.h"

#define BUILTIN_NAME "mini-glm-dsa.gguf"
#define MAX_LISTED 40

// ---- messages ----

static void add_path(struct lp_bytes *text, const char *path) {
    lp_shell_quote_path(text, path);
}

// Prints and releases the text. Returns the exit status.
static int fail(struct lp_bytes *text, int status) {
    lp_fail_text("%s", text->failed || !text->data ? "out of memory" : text->data);
    lp_bytes_release(text);
    return status;
}

static void add_size(struct lp_bytes *text, uint64_t bytes) {
    char size[LP_SIZE_TEXT_BYTES];
    lp_bytes_puts(text, lp_size_text(size, bytes));
}

static int keep(char **path, const char *found) {
    *path = lp_strdup(found);
    return *path ? LP_EXIT_OK : lp_fail_text("out of memory: the model's path");
}

// ---- the built-in model ----

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// LP_DATA_FROM_BIN: where an installed limpid has its data, seen from its own folder.
static bool find_installed(char out[PATH_MAX]) {
    char self[PATH_MAX], path[2 * PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = 0;
    *strrchr(self, '/') = 0; // the kernel gives an absolute path
    const char *data = LP_DATA_FROM_BIN;
    snprintf(path, sizeof path, "%s%s%s/" BUILTIN_NAME, data[0] == '/' ? "" : self,
             data[0] == '/' ? "" : "/", data);
    return is_file(path) && realpath(path, out);
}

int lp_find_builtin(char **path, const struct lp_command *command, const char *doing) {
    char found[PATH_MAX];
    const char *const source = LP_SOURCE_MODELS "/" BUILTIN_NAME;
    if (!find_installed(found)) {
        if (!is_file(source))
            return lp_fail_text("no model was named, and the built-in one (" BUILTIN_NAME
                                ") is not installed; name a GGUF file or a folder with one:\n"
                                "    limpid %s MODEL",
                                command->name);
        snprintf(found, sizeof found, "%s", source);
    }
    struct lp_bytes text = {0};
    add_path(&text, found);
    fprintf(stderr,
            "limpid: no model was named: %s the built-in one, %s (22 million parameters, a demo; "
            "for your own: limpid %s FILE.gguf or FOLDER)\n",
            doing, text.data ? text.data : found, command->name);
    lp_bytes_release(&text);
    return keep(path, found);
}

// ---- a folder ----

// The numbers of the parts that are missing, or their names.
static void add_missing(struct lp_bytes *text, const struct lp_model_set *set, bool names) {
    const char *slash = strrchr(set->path, '/');
    char *name = lp_strdup(slash ? slash + 1 : set->path);
    for (uint32_t i = 0; name && i < set->n_missing && i < LP_MISSING_NAMED; i++) {
        if (i) lp_bytes_puts(text, ", ");
        if (names && lp_model_part_rename(name, set->missing[i]))
            lp_shell_quote(text, name);
        else
            lp_bytes_printf(text, "%05u", set->missing[i]);
    }
    if (set->n_missing > LP_MISSING_NAMED) lp_bytes_puts(text, ", ...");
    lp_free(name);
}

static void add_set(struct lp_bytes *text, const struct lp_model_set *set, const char *folder) {
    const char *name = set->path + strlen(folder);
    while (*name == '/') name++;
    lp_bytes_puts(text, "\n    ");
    lp_shell_quote(text, name);
    lp_bytes_puts(text, "  ");
    add_size(text, set->bytes);
    if (set->is_checkpoint) lp_bytes_puts(text, " of safetensors");
    if (set->n_parts > 1)
        lp_bytes_printf(text, ", %u %s", set->n_parts, set->is_checkpoint ? "files" : "parts");
    if (!set->n_missing) return;
    lp_bytes_puts(text, ", missing: ");
    if (set->n_parts > 1)
        add_missing(text, set, false);
    else
        lp_bytes_puts(text, "the file");
}

static int fail_incomplete(const struct lp_model_set *set, const struct lp_model_wish *wish) {
    struct lp_bytes text = {0};
    if (set->n_parts == 1) {
        add_path(&text, set->path);
        lp_bytes_puts(&text, " is a link to a file that is not there; download it again");
        return fail(&text, LP_EXIT_FAILURE);
    }
    add_path(&text, set->path);
    lp_bytes_printf(&text, " has %u parts, and %u of them %s missing: ", set->n_parts,
                    set->n_missing, set->n_missing == 1 ? "is" : "are");
    add_missing(&text, set, true);
    lp_bytes_puts(&text, "; put all parts into one folder, then:");
    lp_next_command_add(&text, wish, set->path);
    return fail(&text, LP_EXIT_FAILURE);
}

static int fail_empty(const struct lp_model_folder *in, const char *folder,
                      const struct lp_model_wish *wish) {
    struct lp_bytes text = {0};
    lp_bytes_puts(&text, "the folder ");
    add_path(&text, folder);
    if (in->has_checkpoint) {
        lp_bytes_puts(&text, " holds weights, but neither a GGUF file nor a config.json with "
                             "safetensors beside it, which is what limpid reads; download the rest "
                             "of the model's files into it (config.json, tokenizer.json, all "
                             "*.safetensors), or the model as GGUF, then:");
        lp_next_command_add(&text, wish, folder);
    } else {
        lp_bytes_puts(&text, " and the folders in it hold no GGUF file and no Hugging Face model; "
                             "download one into it, or name another file or folder:");
        lp_next_command_add_open(&text, wish);
    }
    return fail(&text, LP_EXIT_FAILURE);
}

static int fail_several(const struct lp_model_folder *in, const char *folder,
                        const struct lp_model_wish *wish) {
    struct lp_bytes text = {0};
    const struct lp_model_set *next = &in->sets[0];
    lp_bytes_puts(&text, "the folder ");
    add_path(&text, folder);
    lp_bytes_printf(&text, " holds %zu models:", in->n_sets);
    for (size_t i = 0; i < in->n_sets; i++) {
        if (i < MAX_LISTED) add_set(&text, &in->sets[i], folder);
        if (next->n_missing && !in->sets[i].n_missing) next = &in->sets[i];
    }
    if (in->n_sets > MAX_LISTED)
        lp_bytes_printf(&text, "\n    and %zu more", in->n_sets - MAX_LISTED);
    lp_bytes_puts(&text, "\nName one of them:");
    lp_next_command_add(&text, wish, next->path);
    return fail(&text, LP_EXIT_USAGE);
}

static int fail_unreadable(const char *path, const char *what, const char *why, const char *mode) {
    struct lp_bytes text = {0};
    lp_bytes_printf(&text, "cannot read the %s ", what);
    add_path(&text, path);
    lp_bytes_printf(&text, ": %s; its owner can allow it:\n    chmod %s ", why, mode);
    add_path(&text, path);
    return fail(&text, LP_EXIT_FAILURE);
}

static int use_file(char **path, const char *file) {
    return access(file, R_OK) && errno == EACCES
               ? fail_unreadable(file, "file", strerror(EACCES), "+r")
               : keep(path, file);
}

static int use_checkpoint(char **path, const char *config) {
    *path = lp_model_checkpoint_of(config);
    if (!*path) return lp_fail_text("out of memory: the model's path");
    if (access(config, R_OK) == 0 || errno != EACCES) return LP_EXIT_OK;
    lp_free(*path);
    *path = NULL;
    return fail_unreadable(config, "file", strerror(EACCES), "+r");
}

// The model was not named, but found: which it is, is said. A folder that is a model was named.
static int use_only_set(char **path, const struct lp_model_set *set, const char *folder) {
    struct lp_bytes text = {0};
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') n--;
    bool named = set->is_checkpoint && strncmp(set->path, folder, n) == 0 &&
                 !strchr(set->path + n + strspn(set->path + n, "/"), '/');
    if (named) return use_checkpoint(path, set->path);
    add_path(&text, set->path);
    lp_bytes_puts(&text, " (");
    add_size(&text, set->bytes);
    if (set->is_checkpoint) lp_bytes_puts(&text, " of safetensors");
    if (set->n_parts > 1)
        lp_bytes_printf(&text, ", %u %s", set->n_parts, set->is_checkpoint ? "files" : "parts");
    lp_bytes_puts(&text, ")");
    if (text.data) fprintf(stderr, "limpid: the model of the folder: %s\n", text.data);
    lp_bytes_release(&text);
    return set->is_checkpoint ? use_checkpoint(path, set->path) : use_file(path, set->path);
}

// The one that is meant, or NULL: there are several.
static const struct lp_model_set *find_only_set(const struct lp_model_folder *in,
                                                enum lp_model_kind kind) {
    const struct lp_model_set *found = NULL;
    size_t n = 0;
    for (size_t i = 0; i < in->n_sets; i++) {
        if (kind == LP_MODEL_FOLDER && !in->sets[i].is_checkpoint) continue;
        found = &in->sets[i];
        n++;
    }
    if (n == 1) return found;
    return in->n_sets == 1 ? &in->sets[0] : NULL;
}

static int find_in_folder(char **path, const char *folder, const struct lp_model_wish *wish) {
    struct lp_model_folder in;
    struct lp_err err;
    int status;
    lp_status failed = lp_model_folder_read(&in, folder, &err);
    const struct lp_model_set *only = find_only_set(&in, wish->kind);
    if (failed)
        status = err.status == LP_STATUS_IO ? fail_unreadable(folder, "folder", err.text, "+rx")
                                            : lp_fail_text("%s", err.text);
    else if (in.n_sets == 0)
        status = fail_empty(&in, folder, wish);
    else if (!only)
        status = fail_several(&in, folder, wish);
    else if (only->n_missing)
        status = fail_incomplete(only, wish);
    else
        status = use_only_set(path, only, folder);
    lp_model_folder_release(&in);
    return status;
}

// The folder of a path; the path without its last component in `out`.
static const char *split_path(const char *path, char out[PATH_MAX]) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    snprintf(out, PATH_MAX, "%.*s", (int)n, path);
    return path + n;
}

// ---- a file ----

// Whether it is a part of a set, and which parts are missing, the file itself says: a name may
// deceive.
static int find_file(char **path, const char *file, const struct lp_model_wish *wish) {
    char *folder = lp_model_checkpoint_of(file);
    lp_free(folder);
    if (folder) return use_checkpoint(path, file);
    if (lp_is_checkpoint(file)) {
        struct lp_bytes text = {0};
        char inside[PATH_MAX];
        add_path(&text, file);
        if (lp_name_ends(file, ".safetensors") || lp_name_ends(file, ".safetensors.index.json")) {
            lp_bytes_puts(&text, " is a part of a checkpoint; name its folder, which must hold "
                                 "config.json and tokenizer.json too:");
            split_path(file, inside);
            lp_next_command_add(&text, wish, inside[0] ? inside : ".");
        } else {
            lp_bytes_puts(&text, " is a checkpoint of another kind (PyTorch, ONNX); limpid reads "
                                 "GGUF files and folders of safetensors: download the model as one "
                                 "of these, then:");
            lp_next_command_add_open(&text, wish);
        }
        return fail(&text, LP_EXIT_FAILURE);
    }
    return use_file(path, file);
}

// ---- neither ----

static int fail_absent(const char *given, const struct lp_model_wish *wish) {
    struct lp_bytes text = {0};
    char folder[PATH_MAX];
    const char *name = split_path(given, folder);
    struct stat st;
    add_path(&text, given);
    if (folder[0] && stat(folder, &st)) {
        lp_bytes_puts(&text, ": there is no such file, and no folder ");
        add_path(&text, folder);
    } else
        lp_bytes_puts(&text, ": there is no such file or folder");
    char *near = lp_near_model(folder[0] ? folder : ".", name);
    if (near) {
        struct lp_bytes path = {0};
        lp_bytes_printf(&path, "%s%s", folder, near);
        lp_bytes_puts(&text, "; is it this one?");
        if (path.data) lp_next_command_add(&text, wish, path.data);
        lp_bytes_release(&path);
    } else {
        lp_bytes_puts(&text, wish->kind == LP_MODEL_FOLDER
                                 ? "; name a folder with config.json and *.safetensors:"
                                 : "; name a GGUF file, or a folder with one:");
        lp_next_command_add_open(&text, wish);
    }
    lp_free(near);
    return fail(&text, LP_EXIT_FAILURE);
}

int lp_find_model_for(char **path, const struct lp_model_wish *wish) {
    const char *given = wish->given;
    struct stat st;
    // The folder that a file tool reads may well hold the GGUF files that it has written.
    if (wish->kind != LP_MODEL_ANY && lp_hf_is_folder(given)) return keep(path, given);
    if (stat(given, &st) == 0)
        return S_ISDIR(st.st_mode) ? find_in_folder(path, given, wish)
                                   : find_file(path, given, wish);
    if (errno == EACCES) {
        char folder[PATH_MAX];
        split_path(given, folder);
        return fail_unreadable(folder[0] ? folder : ".", "folder", strerror(EACCES), "+rx");
    }
    struct lp_bytes text = {0};
    if (lp_remote_advice(&text, given, wish)) return fail(&text, LP_EXIT_FAILURE);
    struct lp_model_set set; // one part that is not there, of a set that is
    if (!lp_model_set_look(&set, given)) return lp_fail_text("out of memory: the model's path");
    bool partly = set.n_missing < set.n_parts;
    int status = partly ? fail_incomplete(&set, wish) : fail_absent(given, wish);
    lp_free(set.path);
    return status;
}

int lp_find_model(char **path, const char *given, const struct lp_command *command) {
    return lp_find_model_for(path, &(struct lp_model_wish){.command = command, .given = given});
}
