# Random schemas, and texts that their grammars accept: each is valid for Python's jsonschema.
add_executable(sample_schema ${CMAKE_CURRENT_LIST_DIR}/sample_schema.c)
target_link_libraries(sample_schema PRIVATE lp_grammar)
add_test(NAME grammar_schemas
         COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_LIST_DIR}/schemas.py $<TARGET_FILE:sample_schema>)
set_tests_properties(grammar_schemas PROPERTIES SKIP_RETURN_CODE 77)

# The same asked of a live server, whose small model writes what the schema allows.
set(n_schemas 500)
if(LIMPID_SANITIZE)
  set(n_schemas 60)
endif()
add_test(NAME grammar_answers
         COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_LIST_DIR}/answers.py $<TARGET_FILE:limpid>
                 ${CMAKE_SOURCE_DIR}/models/mini-glm-dsa.gguf ${n_schemas} 7)
set_tests_properties(grammar_answers PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
