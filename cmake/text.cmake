# The tokenizer's and the reply parser's sources are listed here, the chat template's in
# text_jinja.cmake.
set(LP_TOKENIZER_SOURCES text/vocab.c text/special_match.c text/tok_encode.c text/pretok.c
                         text/pair_merge.c text/bpe.c text/spm.c text/detok.c)
set(LP_REPLY_SOURCES text/reply.c text/reply_text.c text/reply_syntax.c text/reply_value.c
                     text/reply_json.c text/reply_pairs.c text/reply_glm.c text/reply_dsml.c
                     text/reply_arguments.c text/reply_json_calls.c)
set(LP_JINJA_SOURCES "")
include(cmake/text_jinja.cmake OPTIONAL)
lp_folder(text
  SOURCES ${LP_TOKENIZER_SOURCES} ${LP_REPLY_SOURCES} ${LP_JINJA_SOURCES}
  LINK lp_base PkgConfig::PCRE2 PkgConfig::JANSSON m)
