// Regular expressions of pre-tokenizers, made comparable: one spelling for each of the trivially
// different ways in which tokenizer files write the same expression.
//
//   (?:A|B)|C, (A)|B      A|B|C, A|B            groups that only group
//   (?i:'s)               '[Ss]                 (ASCII letters; U+017F for s is not kept)
//   a, \x61, \u0061, [a]  [61]                  characters are classes of one
//   [b-da], [\s\p{L}]     [61-64], [;pL;s]      ranges merged, members in order
//   \S, [^\s]             [^;s]
//   +, {1,}               {1,}                  repeats by their bounds; lazy "?" and possessive "+"
//
// Whatever else differs stays different: two spellings that are equal here match the same texts.
#ifndef LP_HF_HF_REGEX_H
#define LP_HF_HF_REGEX_H

#include "base/bytes.h"

#define LP_HF_REGEX_BYTES 16384

// Appends the one spelling. False when the expression has something that is not understood here,
// is too long, or memory is short (out->failed).
bool lp_hf_regex_spell(struct lp_str regex, struct lp_bytes *out);
// The spelling of an expression that matches this very text.
bool lp_hf_regex_spell_text(struct lp_str text, struct lp_bytes *out);

#endif
