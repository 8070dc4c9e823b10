# Generators of the tree: what they write is what is committed.
add_test(NAME gen_codebooks
         COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/tools/test_gen_codebooks.py)
# Needs numpy and gguf; says so and is skipped without them.
add_test(NAME quant_vectors
         COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/tools/quant_vectors.py --check
                 ${CMAKE_SOURCE_DIR}/tests/unit/test_dequant.c)
set_tests_properties(quant_vectors PROPERTIES SKIP_RETURN_CODE 77)
