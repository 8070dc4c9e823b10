# Ranks talk by MPI, where the build has it.
set(LP_COMM dist/comm_alone.c)
if(LIMPID_MPI)
  set(LP_COMM dist/comm_mpi.c dist/comm_life.c)
endif()
lp_folder(dist
  SOURCES dist/comm.c dist/order.c dist/sharding.c ${LP_COMM}
  LINK lp_base PkgConfig::XXHASH)
if(LIMPID_MPI)
  target_link_libraries(lp_dist PUBLIC PkgConfig::MPI ${CMAKE_DL_LIBS})
endif()
