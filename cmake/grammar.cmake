lp_folder(grammar
  SOURCES grammar/build.c grammar/rule_facts.c grammar/utf8_ranges.c grammar/automaton.c
          grammar/leaf_states.c grammar/config_sets.c grammar/dfa.c grammar/trie.c grammar/masks.c
          grammar/matcher.c grammar/grammar.c grammar/grammar_source.c grammar/choice_list.c grammar/gbnf.c
          grammar/char_ranges.c grammar/digit_walk.c grammar/json_grammar.c grammar/other_names.c
          grammar/regex.c grammar/regex_class.c grammar/regex_emit.c grammar/schema.c
          grammar/schema_accepts.c grammar/schema_apart.c grammar/schema_array.c grammar/schema_flat.c
          grammar/schema_format.c grammar/schema_keywords.c grammar/schema_members.c grammar/schema_merge.c
          grammar/schema_number.c grammar/schema_object.c grammar/schema_string.c grammar/text_without.c
          grammar/tool_arguments.c grammar/tool_schema.c grammar/tools.c
  LINK lp_text lp_base PkgConfig::JANSSON Threads::Threads)
