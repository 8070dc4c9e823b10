# liblimpid.so beside liblimpid.a, and what `cmake --install` puts in place: the program, the built-in model,
# header, both libraries, and the files by which pkg-config and find_package(limpid) find them (docs/library.md).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_target_properties(liblimpid PROPERTIES EXPORT_NAME static)
set(libraries liblimpid)
if(LIMPID_SHARED)
  set(map ${PROJECT_SOURCE_DIR}/cmake/liblimpid.map)
  add_library(liblimpid_shared SHARED ${objects})
  # Before 1.0 a minor version may change the structs of limpid.h; then SOVERSION is raised with it.
  set_target_properties(liblimpid_shared PROPERTIES OUTPUT_NAME limpid EXPORT_NAME shared LINKER_LANGUAGE C
                        VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS ${map})
  target_include_directories(liblimpid_shared PUBLIC
                             $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_options(liblimpid_shared PRIVATE -Wl,--version-script=${map})
  target_link_libraries(liblimpid_shared PRIVATE PkgConfig::PCRE2 PkgConfig::JANSSON PkgConfig::XXHASH
                                                 PkgConfig::LIBURING PkgConfig::HWLOC Threads::Threads m)
  if(LIMPID_MPI)
    target_link_libraries(liblimpid_shared PRIVATE PkgConfig::MPI)
  endif()
  if(LIMPID_CUDA)
    target_link_libraries(liblimpid_shared PRIVATE CUDA::cudart_static)
  endif()
  list(APPEND libraries liblimpid_shared)
endif()

install(TARGETS limpid)
install(TARGETS ${libraries} EXPORT limpidTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The model that `limpid run` and `serve` take where none is named; cmake/cli.cmake tells where.
install(FILES models/mini-glm-dsa.gguf DESTINATION ${CMAKE_INSTALL_DATADIR}/limpid)
install(FILES include/limpid.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# limpid.pc finds its prefix from its own place, so that --prefix and moving the tree keep it right.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  string(TOLOWER pc_${dir} name)
  set(${name} "${CMAKE_INSTALL_${dir}}")
  if(NOT IS_ABSOLUTE "${${name}}")
    set(${name} "\${prefix}/${${name}}")
  endif()
endforeach()
# What limpid itself needs concerns only who links the archive. hwloc by its name alone: its .pc asks for what only
# a static hwloc needs.
set(pc_private "")
set(pc_libs "-lhwloc -lm -pthread")
set(pc_requires "libpcre2-8 jansson libxxhash liburing")
if(LIMPID_MPI)
  string(APPEND pc_requires " ompi-c")
endif()
if(LIMPID_CUDA)
  string(APPEND pc_libs " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
set(pc_libs_private "")
if(LIMPID_SHARED)
  set(pc_private ".private")
  set(pc_libs_private "${pc_libs}")
  set(pc_libs "")
endif()
configure_file(cmake/limpid.pc.in limpid.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/limpid.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/limpid)
configure_package_config_file(cmake/limpidConfig.cmake.in limpidConfig.cmake INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(limpidConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT limpidTargets NAMESPACE limpid:: DESTINATION ${package_dir})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/limpidConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/limpidConfigVersion.cmake
        DESTINATION ${package_dir})
