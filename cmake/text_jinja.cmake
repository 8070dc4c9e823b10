# The chat templates of src/text, for text.cmake.
set(LP_JINJA_SOURCES
  text/jinja_lex.c text/jinja_parse.c text/jinja_parse_expr.c text/jinja_value.c text/jinja_print.c
  text/jinja_eval.c text/jinja_eval_expr.c text/jinja_ops.c text/jinja_builtins.c
  text/jinja_filters.c text/jinja_list_filters.c text/jinja_tests.c text/jinja_methods.c
  text/jinja_text.c text/jinja_str.c text/jinja_casemap.c text/chat.c)
