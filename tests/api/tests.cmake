# The server's API against a live server, with the small model of the repository.
set(api_mode "")
if(LIMPID_SANITIZE)
  set(api_mode --sanitizer)
endif()
add_test(NAME api
         COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/api/run_cases.py $<TARGET_FILE:limpid>
                 ${CMAKE_SOURCE_DIR}/models/mini-glm-dsa.gguf ${api_mode})
set_tests_properties(api PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800)
