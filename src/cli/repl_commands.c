// The chat's commands: a table of name, argument, help and function. A new one is a row.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/near_name.h"
#include "cli/repl.h"

struct command {
    const char *name, *argument, *help;
    void (*run)(struct lp_repl *repl, const char *argument); // without spaces around it; "": none
};

static void help(struct lp_repl *repl, const char *argument);

static void think(struct lp_repl *repl, const char *argument) {
    static const char *const names[] = {"as the model's template has it", "on", "off"};
    if (strcmp(argument, "on") == 0)
        repl->thinking = LP_THINK_ON;
    else if (strcmp(argument, "off") == 0)
        repl->thinking = LP_THINK_OFF;
    else if (*argument) {
        fprintf(stderr, "/think takes on or off, not '%s'\n", argument);
        return;
    }
    fprintf(stderr, "reasoning: %s\n", names[repl->thinking]);
}

static void stats(struct lp_repl *repl, const char *argument) {
    const struct lp_generator *g = repl->generator;
    const struct lp_generated *last = &g->last;
    double prefill_s = (double)last->prefill_ns * 1e-9, decode_s = (double)last->decode_ns * 1e-9;
    (void)argument;
    if (last->n_prompt)
        fprintf(stderr,
                "last answer: %lld tokens in %.2f s (%.1f a second) behind a prompt of %lld "
                "(%lld known), first token after %.2f s\n"
                "context: %lld of %lld tokens\n",
                (long long)last->n_generated, decode_s,
                decode_s > 0 ? (double)last->n_decode / decode_s : 0, (long long)last->n_prompt,
                (long long)last->n_cached, prefill_s,
                (long long)(last->n_prompt + last->n_generated),
                (long long)limpid_engine_context(g->engine));
    fprintf(stderr, "since the start:\n");
    lp_generator_print_stats(g, stderr);
}

static void set(struct lp_repl *repl, const char *argument) {
    struct lp_err err;
    struct lp_sampling *sampling = &repl->generator->sampling;
    size_t n = strcspn(argument, " \t");
    const char *value = argument + n + strspn(argument + n, " \t");
    if (!*argument) {
        lp_sampling_print(sampling, stderr);
        return;
    }
    char *name = lp_strndup(argument, n);
    if (!name)
        fprintf(stderr, "out of memory: the setting's name\n");
    else if (lp_sampling_set(sampling, name, value, &err))
        fprintf(stderr, "%s\n", err.text);
    else
        fprintf(stderr, "%s: %s\n", name, value);
    lp_free(name);
}

static void set_system(struct lp_repl *repl, const char *argument) {
    struct lp_err err;
    const char *text = strcmp(argument, "none") == 0 ? NULL : argument;
    if (!*argument) {
        const char *now = lp_dialogue_system(&repl->dialogue);
        fprintf(stderr, "system message: %s\n", now ? now : "none");
    } else if (lp_dialogue_set_system(&repl->dialogue, text, &err))
        fprintf(stderr, "%s\n", err.text);
    else
        fprintf(stderr, "the system message is %s, from the next answer on\n",
                text ? "set" : "taken out");
}

// ---- turns ----

static void retry(struct lp_repl *repl, const char *argument) {
    struct lp_sampling *sampling = &repl->generator->sampling;
    (void)argument;
    if (lp_dialogue_n_turns(&repl->dialogue) == 0) {
        fprintf(stderr, "there is no message to answer again\n");
        return;
    }
    if (lp_dialogue_drop_answer(&repl->dialogue)) {
        sampling->seed = (int64_t)(((uint64_t)sampling->seed + 1) & INT64_MAX);
        if (sampling->temperature == 0)
            fprintf(stderr, "(temperature is 0, so the answer will be the same; /set temperature "
                            "0.8 brings others)\n");
    }
    lp_repl_answer(repl);
}

static void undo(struct lp_repl *repl, const char *argument) {
    (void)argument;
    if (!lp_dialogue_drop_turn(&repl->dialogue))
        fprintf(stderr, "there is no turn to take back\n");
    else
        fprintf(stderr, "the last turn is taken back; %zu left\n",
                lp_dialogue_n_turns(&repl->dialogue));
}

static void clear(struct lp_repl *repl, const char *argument) {
    (void)argument;
    lp_dialogue_clear(&repl->dialogue);
    fprintf(stderr, "a new conversation%s\n",
            lp_dialogue_system(&repl->dialogue) ? "; the system message stays" : "");
}

static void leave(struct lp_repl *repl, const char *argument) {
    (void)argument;
    repl->ended = true;
}

// ---- files ----

// The path that was typed, "~/" at its beginning resolved; from lp_alloc. NULL: a message was
// printed.
static char *path_of(const char *argument, const char *command) {
    struct lp_bytes path = {0};
    const char *home = getenv("HOME");
    if (!*argument) {
        fprintf(stderr, "/%s needs the name of a file\n", command);
        return NULL;
    }
    bool at_home = argument[0] == '~' && argument[1] == '/' && home;
    lp_bytes_printf(&path, "%s%s", at_home ? home : "", argument + at_home);
    char *out = path.failed ? NULL : lp_strdup(path.data);
    if (!out) fprintf(stderr, "out of memory: the file's name\n");
    lp_bytes_release(&path);
    return out;
}

// The conversation belongs to this file now. Takes the path over.
static void set_path(struct lp_repl *repl, char *path) {
    lp_free(repl->path);
    repl->path = path;
}

static void save(struct lp_repl *repl, const char *argument) {
    struct lp_err err;
    char *path = path_of(argument, "save");
    if (!path) return;
    bool own = repl->path && strcmp(repl->path, path) == 0;
    if (!own && access(path, F_OK) == 0)
        fprintf(stderr, "%s is there already and is not this conversation's; choose another name\n",
                path);
    else if (lp_dialogue_save(&repl->dialogue, path, &err))
        fprintf(stderr, "%s\n", err.text);
    else {
        fprintf(stderr, "saved in %s\n", path);
        set_path(repl, path);
        return;
    }
    lp_free(path);
}

// What the model's template refuses is not taken up.
static bool can_be_answered(const struct lp_repl *repl, const struct lp_dialogue *dialogue) {
    struct lp_repl candidate = *repl;
    limpid_error err;
    char *prompt;
    size_t n_bytes;
    candidate.dialogue = *dialogue;
    if (json_array_size(dialogue->messages) == 0) return true;
    if (lp_repl_render(&candidate, &prompt, &n_bytes, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    limpid_free(prompt);
    return true;
}

static void load(struct lp_repl *repl, const char *argument) {
    struct lp_err err;
    struct lp_dialogue loaded = {0};
    char *path = path_of(argument, "load");
    if (!path) return;
    if (lp_dialogue_load(&loaded, path, &err))
        fprintf(stderr, "%s\n", err.text);
    else if (can_be_answered(repl, &loaded)) {
        lp_dialogue_release(&repl->dialogue);
        repl->dialogue = loaded;
        fprintf(stderr, "loaded: %zu turns%s\n", lp_dialogue_n_turns(&loaded),
                lp_dialogue_is_answered(&loaded) ? "" : "; /retry answers the last one");
        set_path(repl, path);
        return;
    }
    lp_dialogue_release(&loaded);
    lp_free(path);
}

// ---- the table ----

static const struct command commands[] = {
    {"help", "", "this list", help},
    {"think", "[on|off]", "reasoning before answers", think},
    {"set", "[NAME VALUE]", "temperature, top_p, top_k, ...; without NAME: all of them", set},
    {"system", "[TEXT]", "the system message; none takes it out", set_system},
    {"retry", "", "the last answer again", retry},
    {"undo", "", "take the last turn back", undo},
    {"clear", "", "begin anew; the system message stays", clear},
    {"save", "FILE", "the conversation, as .json or .md", save},
    {"load", "FILE", "go on with a conversation saved as .json", load},
    {"stats", "", "tokens, times and memory", stats},
    {"exit", "", "leave (/bye and Ctrl-D too)", leave},
    {"bye", "", NULL, leave},
    {"?", "", NULL, help},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void help(struct lp_repl *repl, const char *argument) {
    (void)repl, (void)argument;
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].help)
            fprintf(stderr, "  /%-6s %-13s %s\n", commands[i].name, commands[i].argument,
                    commands[i].help);
    fprintf(stderr,
            "Several lines: \"\"\" before and after them, a backslash at a line's end, Alt-Enter, "
            "or paste them.\n"
            "A message that begins with '/': put a space in front.\n"
            "Up and down: what was typed before; Ctrl-R searches in it. Ctrl-C stops an answer.\n");
}

// A name that was meant, or NULL.
static const char *near_command(const char *name) {
    const char *best = NULL;
    size_t best_distance = SIZE_MAX, distance;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (!lp_name_is_near(name, commands[i].name, &distance) || distance >= best_distance)
            continue;
        best = commands[i].name;
        best_distance = distance;
    }
    return best;
}

void lp_repl_command(struct lp_repl *repl, const char *line) {
    size_t n = strcspn(line + 1, " \t");
    const char *rest = line + 1 + n;
    rest += strspn(rest, " \t");
    size_t n_rest = strlen(rest);
    while (n_rest > 0 && strchr(" \t", rest[n_rest - 1])) n_rest--;
    char *name = lp_strndup(line + 1, n), *argument = lp_strndup(rest, n_rest);
    const struct command *found = NULL;
    for (size_t i = 0; name && i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) found = &commands[i];
    if (!name || !argument)
        fprintf(stderr, "out of memory\n");
    else if (found)
        found->run(repl, argument);
    else {
        const char *near = near_command(name);
        fprintf(stderr, "there is no command /%s%s%s%s; /help lists them\n", name,
                near ? " (/" : "", near ? near : "", near ? "?)" : "");
    }
    lp_free(name);
    lp_free(argument);
}
