# The web page in a browser; skipped where chromium or the Python package playwright is missing.
add_test(NAME page
         COMMAND ${clients_python} -B ${CMAKE_SOURCE_DIR}/tests/page/page.py $<TARGET_FILE:limpid>
                 ${CMAKE_SOURCE_DIR}/models/mini-glm-dsa.gguf)
set_tests_properties(page PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
