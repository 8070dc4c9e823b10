# The doctor's clinic: every planted fault is found, no sound model is accused.
set(clinic_mode "")
if(LIMPID_SANITIZE)
  set(clinic_mode --sanitizer)
endif()
add_test(NAME clinic
         COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_LIST_DIR}/clinic.py $<TARGET_FILE:limpid>
                 --faulty $<TARGET_FILE:limpid-faulty> --downloads ${CMAKE_SOURCE_DIR}/build/downloads
                 ${clinic_mode})
set_tests_properties(clinic PROPERTIES LABELS e2e TIMEOUT 5400 RUN_SERIAL TRUE)
