// The syntaxes of tool calls: their names, their tags, and how a chat template gives them away.
#include "text/reply_parts.h"

#define THINK "<think>"
#define THINK_END "</think>"
#define THINK_TAGS [LP_TAG_THINK] = THINK, [LP_TAG_THINK_END] = THINK_END

#define DEEPSEEK_TAGS                                                                              \
    THINK_TAGS, [LP_TAG_SECTION] = "<｜tool▁calls▁begin｜>",                                       \
                [LP_TAG_CALL] = "<｜tool▁call▁begin｜>", [LP_TAG_SEPARATOR] = "<｜tool▁sep｜>",    \
                [LP_TAG_CALL_END] = "<｜tool▁call▁end｜>",                                         \
                [LP_TAG_SECTION_END] = "<｜tool▁calls▁end｜>"
#define DEEPSEEK_MARKERS                                                                           \
    {                                                                                              \
        THINK, THINK_END, "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",     \
            "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"                                    \
    }

#define TAG(name) LP_TAG_BIT(LP_TAG_##name)

const struct lp_reply_style lp_reply_styles[] = {
    [LP_SYNTAX_PLAIN] = {.name = "plain", .tags = {THINK_TAGS}, .markers = {THINK, THINK_END}},
    [LP_SYNTAX_GLM] =
        {.name = "glm",
         .tags = {THINK_TAGS, [LP_TAG_CALL] = "<tool_call>", [LP_TAG_CALL_END] = "</tool_call>",
                  [LP_TAG_KEY] = "<arg_key>", [LP_TAG_KEY_END] = "</arg_key>",
                  [LP_TAG_VALUE] = "<arg_value>", [LP_TAG_VALUE_END] = "</arg_value>"},
         .markers = {THINK, THINK_END, "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
                     "<arg_value>", "</arg_value>"},
         .head = lp_reply_glm_head,
         .pairs = lp_reply_glm_pairs,
         .ends_value = lp_reply_glm_ends_value,
         .value_tags = TAG(KEY) | TAG(CALL) | TAG(CALL_END)},
    [LP_SYNTAX_DEEPSEEK_V3] = {.name = "deepseek-v3",
                               .tags = {DEEPSEEK_TAGS},
                               .markers = DEEPSEEK_MARKERS,
                               .head = lp_reply_deepseek_head},
    [LP_SYNTAX_DEEPSEEK_V31] = {.name = "deepseek-v3.1",
                                .tags = {DEEPSEEK_TAGS},
                                .markers = DEEPSEEK_MARKERS,
                                .head = lp_reply_deepseek_head},
    [LP_SYNTAX_DEEPSEEK_V32] =
        {.name = "deepseek-v3.2",
         .tags =
             {THINK_TAGS, [LP_TAG_SECTION] = "<｜DSML｜function_calls>",
              [LP_TAG_SECTION_TOO] = "<｜DSML｜tool_calls>",
              [LP_TAG_SECTION_END] = "</｜DSML｜function_calls>",
              [LP_TAG_SECTION_END_TOO] =
                  "</｜DSML｜tool_calls>",
              [LP_TAG_CALL] = "<｜DSML｜invoke", [LP_TAG_CALL_END] = "</｜DSML｜invoke>",
              [LP_TAG_VALUE] = "<｜DSML｜parameter", [LP_TAG_VALUE_END] = "</｜DSML｜parameter>"},
         .markers = {THINK, THINK_END, "｜DSML｜"},
         .head = lp_reply_dsml_head,
         .pairs = lp_reply_dsml_pairs,
         .ends_value = lp_reply_dsml_ends_value,
         .value_tags = TAG(VALUE) | TAG(CALL_END) | LP_TAGS_SECTION_END},
    [LP_SYNTAX_KIMI] = {.name = "kimi",
                        .tags = {THINK_TAGS, [LP_TAG_SECTION] = "<|tool_calls_section_begin|>",
                                 [LP_TAG_SECTION_END] = "<|tool_calls_section_end|>",
                                 [LP_TAG_CALL] = "<|tool_call_begin|>",
                                 [LP_TAG_SEPARATOR] = "<|tool_call_argument_begin|>",
                                 [LP_TAG_CALL_END] = "<|tool_call_end|>"},
                        .markers = {THINK, THINK_END, "<|tool_calls_section_begin|>",
                                    "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                                    "<|tool_call_argument_begin|>", "<|tool_call_end|>"},
                        .head = lp_reply_kimi_head},
    [LP_SYNTAX_HERMES] =
        {.name = "hermes",
         .tags = {THINK_TAGS, [LP_TAG_CALL] = "<tool_call>", [LP_TAG_CALL_END] = "</tool_call>"},
         .markers = {THINK, THINK_END, "<tool_call>", "</tool_call>"},
         .head = lp_reply_hermes_head},
};

enum { N_SYNTAXES = sizeof lp_reply_styles / sizeof *lp_reply_styles };

enum lp_reply_syntax lp_reply_detect(const char *chat_template) {
    static const struct {
        const char *has, *lacks;
        enum lp_reply_syntax syntax;
    } rows[] = {
        {"｜DSML｜", NULL, LP_SYNTAX_DEEPSEEK_V32},
        {"<｜tool▁call▁begin｜>", "```json", LP_SYNTAX_DEEPSEEK_V31},
        {"<｜tool▁call▁begin｜>", NULL, LP_SYNTAX_DEEPSEEK_V3},
        {"<|tool_call_begin|>", NULL, LP_SYNTAX_KIMI},
        {"<arg_key>", NULL, LP_SYNTAX_GLM},
        {"<tool_call>", "<function=", LP_SYNTAX_HERMES}, // Qwen3-Coder has other calls
    };
    for (size_t i = 0; chat_template && i < sizeof rows / sizeof *rows; i++)
        if (strstr(chat_template, rows[i].has) &&
            !(rows[i].lacks && strstr(chat_template, rows[i].lacks)))
            return rows[i].syntax;
    return LP_SYNTAX_PLAIN;
}

const char *lp_reply_syntax_name(enum lp_reply_syntax syntax) {
    return lp_reply_styles[syntax].name;
}

bool lp_reply_syntax_from_name(const char *name, enum lp_reply_syntax *out) {
    for (int i = 0; i < N_SYNTAXES; i++)
        if (!strcmp(name, lp_reply_styles[i].name)) {
            *out = (enum lp_reply_syntax)i;
            return true;
        }
    return false;
}

const char *const *lp_reply_markers(enum lp_reply_syntax syntax) {
    return lp_reply_styles[syntax].markers;
}
