file(GLOB LP_GRAMMAR_SOURCES CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/grammar/*.c)
lp_folder(grammar
  SOURCES ${LP_GRAMMAR_SOURCES}
  LINK lp_text lp_base PkgConfig::JANSSON Threads::Threads)
