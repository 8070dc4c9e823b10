# The server as programs know it, through the packages they use; each NAME_client.py is skipped where its package is
# missing. ./test.sh sets the interpreter to one that has them all.
set(LIMPID_CLIENTS_PYTHON "" CACHE FILEPATH
    "Python interpreter with tests/clients/requirements.txt; empty: the one that all tests use")
set(clients_python ${LIMPID_CLIENTS_PYTHON})
if(NOT clients_python)
  set(clients_python Python3::Interpreter)
endif()

file(GLOB clients CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/clients/*_client.py)
foreach(client IN LISTS clients)
  get_filename_component(name ${client} NAME_WE)
  string(REGEX REPLACE "_client$" "" name ${name})
  add_test(NAME clients_${name}
           COMMAND ${clients_python} -B ${client} $<TARGET_FILE:limpid> ${CMAKE_SOURCE_DIR}/models/mini-glm-dsa.gguf)
  set_tests_properties(clients_${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
endforeach()
