# limpid-faulty: limpid with places that go wrong on purpose (src/base/fault.h), for the tests of the
# doctor and of crashes. Never installed. Only the sources with such places are compiled again; the linker
# has their functions then and takes the rest from the folders' archives.
add_executable(limpid-faulty src/cli/main.c tests/clinic/fault.c tests/clinic/faulty_backend.c)
foreach(folder base trace quant gguf text grammar backend kv dist attention model hf engine doctor files serve cli)
  get_target_property(sources lp_${folder} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.c$")
  foreach(source IN LISTS sources)
    file(STRINGS ${source} places REGEX "include \"base/fault\\.h\"|LIMPID_FAULTS" LIMIT_COUNT 1)
    if(places)
      target_sources(limpid-faulty PRIVATE ${source})
    endif()
  endforeach()
endforeach()
get_target_property(backend_definitions lp_backend COMPILE_DEFINITIONS)
target_compile_definitions(limpid-faulty PRIVATE LIMPID_FAULTS ${backend_definitions})
target_include_directories(limpid-faulty PRIVATE include src tests/clinic)
target_link_libraries(limpid-faulty PRIVATE lp_cli)
