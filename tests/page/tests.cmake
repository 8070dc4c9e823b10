# The web page in a browser; skipped where chromium or the Python package playwright is missing. What it asks of the
# server the other tests ask of the sanitized one, too; the browser's patience is not made for that.
if(NOT LIMPID_SANITIZE)
  add_test(NAME page
           COMMAND ${clients_python} -B ${CMAKE_SOURCE_DIR}/tests/page/page.py $<TARGET_FILE:limpid>
                   ${CMAKE_SOURCE_DIR}/models/mini-glm-dsa.gguf)
  set_tests_properties(page PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
endif()

# The page of the doctor.
add_executable(write_reports ${CMAKE_SOURCE_DIR}/tests/page/write_reports.c)
target_link_libraries(write_reports PRIVATE lp_doctor)
if(NOT LIMPID_SANITIZE)
  add_test(NAME report_page
           COMMAND ${clients_python} -B ${CMAKE_SOURCE_DIR}/tests/page/report.py $<TARGET_FILE:limpid>
                   ${CMAKE_SOURCE_DIR}/models/mini-glm-dsa.gguf $<TARGET_FILE:write_reports>)
  set_tests_properties(report_page PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endif()
