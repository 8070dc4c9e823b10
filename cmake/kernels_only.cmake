# The CPU kernels with the tests that compare them with their definitions, and nothing that needs a library
# of the system: for a processor that is not this machine's. The tests run in an emulator, those of the
# matrix kernels once for every CPU below: they differ in the instruction sets they have.
set(LIMPID_EMULATOR qemu-aarch64 CACHE STRING "program that runs the tests, with qemu's options")
set(cpus cortex-a72 neoverse-n1 max) # plain NEON, dot products, 8-bit matrix products

lp_folder(base
  SOURCES base/status.c base/log.c base/alloc.c base/clean.c base/clock.c base/rng.c base/huge_pages.c base/workers.c
          ../tests/cross/topology_unknown.c
  LINK Threads::Threads m)
add_library(lp_trace INTERFACE)
include(cmake/quant.cmake)
include(cmake/backend.cmake)

enable_testing()
file(GLOB kernel_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/kernels/check_*.c)
list(APPEND kernel_tests ${PROJECT_SOURCE_DIR}/tests/unit/test_cpu_features.c
                         ${PROJECT_SOURCE_DIR}/tests/unit/test_cpu_selfcheck.c)
foreach(path IN LISTS kernel_tests)
  get_filename_component(name ${path} NAME_WE)
  add_executable(${name} ${path})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/cross)
  target_compile_definitions(${name} PRIVATE TESTS_EMULATED)
  target_link_libraries(${name} PRIVATE lp_backend)
  set(cpus_of_test cortex-a72)
  if(name MATCHES "check_matmul|test_cpu")
    set(cpus_of_test ${cpus})
  elseif(name MATCHES "matmul|experts")
    set(cpus_of_test max)
  endif()
  foreach(cpu IN LISTS cpus_of_test)
    add_test(NAME ${name}_${cpu} COMMAND ${LIMPID_EMULATOR} -cpu ${cpu} $<TARGET_FILE:${name}>
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endforeach()
endforeach()
