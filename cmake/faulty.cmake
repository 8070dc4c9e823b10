# limpid-faulty: limpid with places that go wrong on purpose (src/base/fault.h), for the tests of the
# doctor and of crashes. Never installed.
add_executable(limpid-faulty src/cli/main.c tests/clinic/fault.c tests/clinic/faulty_backend.c)
foreach(folder base trace quant gguf text grammar backend kv attention model hf engine doctor files serve cli)
  get_target_property(sources lp_${folder} SOURCES)
  get_target_property(definitions lp_${folder} COMPILE_DEFINITIONS)
  list(FILTER sources EXCLUDE REGEX "/backend/cuda/") # its faults are the host's
  target_sources(limpid-faulty PRIVATE ${sources})
  if(definitions)
    target_compile_definitions(limpid-faulty PRIVATE ${definitions})
  endif()
endforeach()
target_compile_definitions(limpid-faulty PRIVATE LIMPID_FAULTS)
target_include_directories(limpid-faulty PRIVATE include src tests/clinic)
target_link_libraries(limpid-faulty PRIVATE PkgConfig::PCRE2 PkgConfig::JANSSON PkgConfig::XXHASH
                                            PkgConfig::MICROHTTPD PkgConfig::LIBEDIT PkgConfig::LIBURING
                                            PkgConfig::HWLOC Threads::Threads m)
