# Manifests, units and configurations of deploy/, each by the program that it is for; skipped where that is missing.
# clients_python: tests/clients/tests.cmake.
foreach(case kubernetes systemd haproxy nginx slurm options process_1)
  add_test(NAME deploy_${case}
           COMMAND ${clients_python} -B ${CMAKE_SOURCE_DIR}/tests/deploy/deploy.py ${case} $<TARGET_FILE:limpid>)
  set_tests_properties(deploy_${case} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
endforeach()
