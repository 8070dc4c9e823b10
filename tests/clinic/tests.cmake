# The doctor's clinic: planted faults are found, no sound model is accused. A part of the cases; all of
# them are run for docs/clinic.md.
set(clinic_mode --every 8)
if(LIMPID_SANITIZE)
  set(clinic_mode --sanitizer --every 40)
endif()
add_test(NAME clinic
         COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_LIST_DIR}/clinic.py $<TARGET_FILE:limpid>
                 --faulty $<TARGET_FILE:limpid-faulty> --downloads ${CMAKE_SOURCE_DIR}/build/downloads
                 ${clinic_mode})
set_tests_properties(clinic PROPERTIES LABELS e2e TIMEOUT 5400 RUN_SERIAL TRUE)
