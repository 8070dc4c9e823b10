# End-to-end tests: the program as a user runs it, on the models of tests/golden and models/. Each is a
# script `NAME.py LIMPID [--sanitizer]`; with sanitizers it runs a reduced matrix. Exit code 77: skipped,
# the script says why.
set(e2e ${CMAKE_SOURCE_DIR}/tests/e2e)
set(e2e_mode "")
if(LIMPID_SANITIZE)
  set(e2e_mode --sanitizer)
endif()

add_executable(generate ${e2e}/generate.c)
target_link_libraries(generate PRIVATE lp_engine PkgConfig::JANSSON)

function(lp_e2e name timeout_s)
  add_test(NAME e2e_${name} COMMAND Python3::Interpreter -B ${e2e}/${name}.py $<TARGET_FILE:limpid> ${e2e_mode} ${ARGN})
  set_tests_properties(e2e_${name} PROPERTIES LABELS e2e SKIP_RETURN_CODE 77 TIMEOUT ${timeout_s}
                       RUN_SERIAL TRUE) # each keeps all CPUs busy by itself
endfunction()

lp_e2e(golden 1800)
if(NOT LIMPID_SANITIZE) # they do not run in the emulator
  lp_e2e(older_cpus 600)
endif()
lp_e2e(kv_fp8 900)
lp_e2e(fused_kv_b 900)
lp_e2e(convert 900)
lp_e2e(bad_folders 600)
lp_e2e(hf_run 1800)
lp_e2e(split 600)
lp_e2e(prefetch 600)
lp_e2e(merge_split 600)
lp_e2e(diff 600)
lp_e2e(bench 600)
lp_e2e(compare 600)
lp_e2e(synth 900)
lp_e2e(sizing 600)
lp_e2e(experts_on_disk 900)
lp_e2e(ranks 1800)
if(NOT LIMPID_SANITIZE) # it waits for most of its time
  lp_e2e(ranks_hosts 300)
endif()
lp_e2e(quantize 900)
lp_e2e(imatrix 600)
lp_e2e(router_keys 600)
lp_e2e(probes 1800)
lp_e2e(tokens 300)
lp_e2e(cli 300)
lp_e2e(first_minute 900 --build ${CMAKE_BINARY_DIR})
lp_e2e(library 600)
lp_e2e(mini 1800 --generate $<TARGET_FILE:generate>)
lp_e2e(smollm 900 --cache ${CMAKE_SOURCE_DIR}/build/downloads)

lp_e2e(fairness 600)
lp_e2e(soak 1200)
set(loose_s 15)
if(LIMPID_SANITIZE)
  set(loose_s 8)
endif()
add_test(NAME e2e_soak_loose COMMAND Python3::Interpreter -B ${e2e}/soak.py $<TARGET_FILE:limpid> ${e2e_mode}
                                     --loose --seconds ${loose_s})
set_tests_properties(e2e_soak_loose PROPERTIES LABELS e2e TIMEOUT 1200 RUN_SERIAL TRUE)
lp_e2e(power_off 1200)
lp_e2e(doctor_command 600)
lp_e2e(doctor_file 1800)
lp_e2e(selfcheck 1200 --faulty $<TARGET_FILE:limpid-faulty>)
lp_e2e(engine_faults 600 --faulty $<TARGET_FILE:limpid-faulty>)
lp_e2e(trace 1200 --faulty $<TARGET_FILE:limpid-faulty>)
lp_e2e(ranks_doctor 900 --faulty $<TARGET_FILE:limpid-faulty>)
if(NCCL_INCLUDE_DIR)
  add_library(nccl_stand_in SHARED ${CMAKE_SOURCE_DIR}/tests/kernels/cuda/nccl_stand_in.c)
  target_include_directories(nccl_stand_in SYSTEM PRIVATE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(nccl_stand_in PRIVATE CUDA::cudart_static)
  set_target_properties(nccl_stand_in PROPERTIES OUTPUT_NAME nccl VERSION 2 SOVERSION 2
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/nccl_stand_in)
  lp_e2e(ranks_gpu 900 --faulty $<TARGET_FILE:limpid-faulty> --stand-in $<TARGET_FILE_DIR:nccl_stand_in>)
endif()
lp_e2e(device_fails 300 --faulty $<TARGET_FILE:limpid-faulty>)

# Whatever runs beside a request, its answer is the same: random schedules on every small model, over a thousand together.
add_executable(schedules ${e2e}/schedules.c)
target_link_libraries(schedules PRIVATE lp_engine)
file(GLOB schedule_models ${CMAKE_SOURCE_DIR}/tests/golden/*.gguf ${CMAKE_SOURCE_DIR}/models/*.gguf)
set(seed 0)
foreach(model IN LISTS schedule_models)
  get_filename_component(name ${model} NAME_WE)
  math(EXPR seed "${seed} + 1")
  set(n_schedules 80)
  set(trained "")
  if(model MATCHES "/models/") # takes ten times as long
    set(n_schedules 45)
    set(trained trained)
  endif()
  if(LIMPID_SANITIZE AND trained)
    set(n_schedules 1)
  elseif(LIMPID_SANITIZE)
    set(n_schedules 3)
  endif()
  add_test(NAME schedules_${name} COMMAND schedules ${model} ${n_schedules} ${seed} ${trained})
  set_tests_properties(schedules_${name} PROPERTIES LABELS e2e TIMEOUT 1800)
endforeach()
# The same with the model in two processes, on some of them.
find_program(MPIRUN mpirun)
if(LIMPID_MPI STREQUAL ON AND MPIRUN)
  set(n_schedules 15)
  set(models dsa_sparse ds3 qwen3)
  if(LIMPID_SANITIZE)
    set(n_schedules 2)
    set(models ds3 qwen3)
  endif()
  foreach(name IN LISTS models)
    set(divisions heads data data-whole)
    if(name STREQUAL dsa_sparse) # it drafts
      list(APPEND divisions stages)
    endif()
    foreach(division IN LISTS divisions)
      set(more "")
      set(n_ranks 2)
      if(NOT division STREQUAL heads)
        set(more ${division})
      endif()
      if(division MATCHES data)
        set(n_ranks 3)
      endif()
      add_test(NAME schedules_ranks_${division}_${name}
               COMMAND ${MPIRUN} --allow-run-as-root --oversubscribe --bind-to none -n ${n_ranks}
                       $<TARGET_FILE:schedules> ${CMAKE_SOURCE_DIR}/tests/golden/${name}.gguf ${n_schedules} 5 ${more})
      set_tests_properties(schedules_ranks_${division}_${name} PROPERTIES LABELS e2e TIMEOUT 900
                           SKIP_REGULAR_EXPRESSION "ORTE|mpirun was unable" # where it can start nothing
                           ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0") # MPI leaves memory behind
    endforeach()
  endforeach()

  # What ranks exchange, by itself: sums and numbers are right, and who is lost is named.
  add_executable(comm_ranks ${e2e}/comm_ranks.c)
  target_link_libraries(comm_ranks PRIVATE lp_dist)
  set(launch ${MPIRUN} --allow-run-as-root --oversubscribe --bind-to none)
  foreach(n_ranks IN ITEMS 2 3 5)
    add_test(NAME comm_ranks_${n_ranks} COMMAND ${launch} -n ${n_ranks} $<TARGET_FILE:comm_ranks>)
    list(APPEND comm_tests comm_ranks_${n_ranks})
    set_tests_properties(comm_ranks_${n_ranks} PROPERTIES PASS_REGULAR_EXPRESSION "of ${n_ranks} ranks are right")
  endforeach()
  foreach(how IN ITEMS dies stops too-large)
    add_test(NAME comm_ranks_${how} COMMAND ${launch} -n 3 $<TARGET_FILE:comm_ranks> ${how})
    list(APPEND comm_tests comm_ranks_${how})
  endforeach()
  set_tests_properties(comm_ranks_dies PROPERTIES PASS_REGULAR_EXPRESSION "rank 0: .*rank 2 on .* has ended")
  set_tests_properties(comm_ranks_stops PROPERTIES PASS_REGULAR_EXPRESSION "rank 0: .*rank 2 on .* is stopped")
  set_tests_properties(comm_ranks_too-large PROPERTIES PASS_REGULAR_EXPRESSION "rank 2: .*lower --chunk")
  set_tests_properties(${comm_tests} PROPERTIES LABELS e2e TIMEOUT 60 SKIP_REGULAR_EXPRESSION "ORTE was unable|mpirun was unable"
                       ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
endif()

add_test(NAME e2e_bad_gguf
         COMMAND Python3::Interpreter -B ${e2e}/check_bad_gguf.py $<TARGET_FILE:limpid>
                 ${CMAKE_SOURCE_DIR}/tests/golden/dsa_sparse.gguf ${e2e_mode})
set_tests_properties(e2e_bad_gguf PROPERTIES LABELS e2e TIMEOUT 1800 RUN_SERIAL TRUE)

# Answers that must match a grammar do, with drafts and pre-emption too.
add_executable(constrained ${e2e}/constrained.c)
target_link_libraries(constrained PRIVATE lp_engine PkgConfig::JANSSON)
set(n_constrained 8)
if(LIMPID_SANITIZE)
  set(n_constrained 1)
endif()
add_test(NAME e2e_constrained COMMAND constrained ${CMAKE_SOURCE_DIR}/models/mini-glm-dsa.gguf ${n_constrained})
set_tests_properties(e2e_constrained PROPERTIES LABELS e2e TIMEOUT 1800)

# The committed golden files are what their generator writes.
add_test(NAME golden_data COMMAND Python3::Interpreter -B ${e2e}/golden_data.py)
set_tests_properties(golden_data PROPERTIES SKIP_RETURN_CODE 77)

# Include directions, and headers that compile alone.
add_test(NAME layers COMMAND Python3::Interpreter -B ${CMAKE_SOURCE_DIR}/tests/layers.py ${CMAKE_C_COMPILER})
set(folders base trace quant gguf text grammar backend kv attention model hf engine files serve cli)
list(TRANSFORM folders REPLACE "(.+)" "$<TARGET_FILE:lp_\\1>" OUTPUT_VARIABLE archives)
add_test(NAME duplicate_symbols
         COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/duplicate_symbols.py ${archives})
