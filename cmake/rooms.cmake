# ponder_precompile(NAME HEADERS): NAME is compiled with ponder_headers, or a test with
# ponder_test_headers: what nearly every file includes, parsed once, which saves about a third of a
# build's time. Each file still includes what it uses: beside a compiler cache, which is better and
# does not look into such headers, there are none.
function(ponder_precompile NAME HEADERS)
  if(CCACHE_PROGRAM)
    return()
  endif()
  if(NOT TARGET ${HEADERS})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${HEADERS}.cc CONTENT "")
    add_library(${HEADERS} OBJECT ${CMAKE_BINARY_DIR}/${HEADERS}.cc)
    target_link_libraries(${HEADERS} PRIVATE Boost::json fmt::fmt Threads::Threads)
    target_precompile_headers(${HEADERS} PRIVATE <boost/json/value.hpp> <fmt/format.h> <tl/expected.hpp>
      <algorithm> <filesystem> <functional> <map> <memory> <mutex> <thread> <vector>)
    if(HEADERS STREQUAL "ponder_test_headers")
      target_link_libraries(${HEADERS} PRIVATE GTest::gtest)
      target_precompile_headers(${HEADERS} PRIVATE <gtest/gtest.h> <fstream>)
    endif()
  endif()
  target_precompile_headers(${NAME} REUSE_FROM ${HEADERS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ takes what it inlines from such headers for ours, and is often wrong about std::string's insides.
    target_compile_options(${NAME} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
      -Wno-stringop-overread)
  endif()
endfunction()

# ponder_room(NAME SOURCES ... [USES ...] [PRIVATE_USES ...])
# One static library per room. USES are the rooms and packages its headers show to others;
# PRIVATE_USES stay inside. tests/tidy reads the #includes and holds them against the picture.
function(ponder_room NAME)
  cmake_parse_arguments(ROOM "" "" "SOURCES;USES;PRIVATE_USES" ${ARGN})
  add_library(${NAME} STATIC ${ROOM_SOURCES})
  target_include_directories(${NAME} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME} PUBLIC ${ROOM_USES} PRIVATE ${ROOM_PRIVATE_USES})
  ponder_precompile(${NAME} ponder_headers)
endfunction()

# ponder_program(NAME SOURCES ... USES ...): an executable in build/<preset>/bin.
function(ponder_program NAME)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;USES" ${ARGN})
  add_executable(${NAME} ${PROGRAM_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${PROGRAM_USES})
endfunction()

# ponder_test(NAME SOURCES ... USES ... [LABELS ...] [TIMEOUT s]): a GoogleTest program, each of
# its tests known to ctest by its own name. The labels asan and tsan put it into those runs of
# scripts/test; gpu and bench keep it out of them.
include(GoogleTest)
function(ponder_test NAME)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;USES;LABELS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  add_executable(${NAME} ${TEST_SOURCES})
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE ${TEST_USES} GTest::gtest GTest::gmock GTest::gtest_main)
  ponder_precompile(${NAME} ponder_test_headers)
  target_compile_definitions(${NAME} PRIVATE
    PONDER_SOURCE_DIR="${PROJECT_SOURCE_DIR}" PONDER_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  foreach(kind asan tsan)
    if(kind IN_LIST TEST_LABELS)
      string(TOUPPER ${kind} upper)
      set_property(GLOBAL APPEND PROPERTY PONDER_${upper}_TESTS ${NAME})
    endif()
  endforeach()
  list(JOIN TEST_LABELS "+" joined)  # ctest -L asan finds "asan+tsan" too
  gtest_discover_tests(${NAME} DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
    PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${joined}")
endfunction()
