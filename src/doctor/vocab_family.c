// Which published vocabulary this is, by the special tokens that only it has. Sizes tell apart
// those that share them: distilled models put DeepSeek's tokens into Qwen's and Llama's.
#include <string.h>

#include "doctor/token_checks.h"

#define DS(word) "<\xEF\xBD\x9C" word "\xEF\xBD\x9C>"
#define DS_BEGIN DS("begin\xE2\x96\x81of\xE2\x96\x81sentence")
#define DS_END DS("end\xE2\x96\x81of\xE2\x96\x81sentence")
#define DS_ASSISTANT DS("Assistant")
#define LLAMA_PRES "llama-bpe llama3 llama-v3"

static const struct lp_vocab_family families[] = {
    {.name = "GLM",
     .has = {"[gMASK]", "<sop>"},
     .pres = "glm4 chatglm-bpe",
     .starts = {"[gMASK]", "<|endoftext|>", "<sop>"},
     .ends = {"<|endoftext|>", "<|user|>", "<|observation|>", "<eop>"},
     .prefix = {"[gMASK]", "<sop>"},
     .assistant = "<|assistant|>"},
    {.name = "Kimi K2",
     .has = {"[BOS]", "[EOS]", "<|im_middle|>"},
     .pres = "kimi-k2",
     .starts = {"[BOS]"},
     .ends = {"[EOS]", "<|im_end|>", "[EOT]"},
     .assistant = "<|im_assistant|>"},
    {.name = "Llama 3 (distilled from DeepSeek)",
     .has = {DS_BEGIN, "<|reserved_special_token_0|>"},
     .pres = LLAMA_PRES,
     .starts = {DS_BEGIN},
     .ends = {DS_END},
     .assistant = DS_ASSISTANT},
    {.name = "Llama 3",
     .has = {"<|begin_of_text|>", "<|eot_id|>"},
     .pres = LLAMA_PRES,
     .starts = {"<|begin_of_text|>"},
     .ends = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>"},
     .assistant = "<|start_header_id|>assistant<|end_header_id|>"},
    {.name = "Qwen (distilled from DeepSeek)",
     .has = {DS_BEGIN},
     .min_tokens = 151000,
     .max_tokens = 153000,
     .pres = "deepseek-r1-qwen qwen2",
     .starts = {DS_BEGIN},
     .ends = {DS_END},
     .assistant = DS_ASSISTANT},
    {.name = "DeepSeek V3",
     .has = {DS_BEGIN},
     .min_tokens = 128700,
     .max_tokens = 129999,
     .pres = "deepseek-v3",
     .starts = {DS_BEGIN},
     .ends = {DS_END},
     .prefix = {DS_BEGIN},
     .assistant = DS_ASSISTANT},
    {.name = "DeepSeek LLM and V2",
     .has = {DS_BEGIN},
     .min_tokens = 100000,
     .max_tokens = 102400,
     .pres = "deepseek-llm",
     .starts = {DS_BEGIN},
     .ends = {DS_END},
     .prefix = {DS_BEGIN}},
    {.name = "DeepSeek Coder",
     .has = {DS_BEGIN},
     .min_tokens = 32000,
     .max_tokens = 33000,
     .pres = "deepseek-coder",
     .starts = {DS_BEGIN},
     .ends = {DS_END, "<|EOT|>"}},
    {.name = "DeepSeek",
     .has = {DS_BEGIN},
     .pres = "deepseek-llm deepseek-v3 deepseek-coder",
     .starts = {DS_BEGIN},
     .ends = {DS_END, "<|EOT|>"}},
    {.name = "Qwen",
     .has = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"},
     .min_tokens = 151000,
     .max_tokens = 153000,
     .pres = "qwen2",
     .starts = {"<|endoftext|>", "<|im_start|>"},
     .ends = {"<|endoftext|>", "<|im_end|>"},
     .assistant = "<|im_start|>assistant"},
    {.name = "SmolLM",
     .has = {"<|im_start|>", "<|im_end|>", "<repo_name>"},
     .min_tokens = 49152,
     .max_tokens = 49300,
     .pres = "smollm",
     .starts = {"<|endoftext|>", "<|im_start|>"},
     .ends = {"<|endoftext|>", "<|im_end|>"},
     .assistant = "<|im_start|>assistant"},
    {.name = "ChatML",
     .has = {"<|im_start|>", "<|im_end|>"},
     .starts = {"<|endoftext|>", "<|im_start|>", "<s>"},
     .ends = {"<|endoftext|>", "<|im_end|>", "</s>"},
     .assistant = "<|im_start|>assistant"},
};

const struct lp_vocab_family *lp_vocab_family(const struct lp_tokenizer *tok) {
    uint32_t n = lp_tokenizer_n_tokens(tok);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const struct lp_vocab_family *f = &families[i];
        bool fits =
            (!f->min_tokens || n >= f->min_tokens) && (!f->max_tokens || n <= f->max_tokens);
        for (int k = 0; k < 3 && f->has[k] && fits; k++)
            fits = lp_tokenizer_find(tok, lp_str_from(f->has[k])) >= 0;
        if (fits) return f;
    }
    return NULL;
}

bool lp_vocab_family_list_has(const char *const *list, struct lp_str text) {
    for (; *list; list++)
        if (lp_str_is(text, *list)) return true;
    return false;
}
