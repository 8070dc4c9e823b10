# Random schemas, and texts that their grammars accept: each is valid for Python's jsonschema.
add_executable(sample_schema ${CMAKE_CURRENT_LIST_DIR}/sample_schema.c)
target_link_libraries(sample_schema PRIVATE lp_grammar)
add_test(NAME grammar_schemas
         COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_LIST_DIR}/schemas.py $<TARGET_FILE:sample_schema>)
set_tests_properties(grammar_schemas PROPERTIES SKIP_RETURN_CODE 77)
