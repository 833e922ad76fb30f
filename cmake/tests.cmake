# Tests: one program and one ctest per folder tests/<folder>/*_test.cpp.
find_package(Catch2 QUIET)
if(NOT Catch2_FOUND)
  message(FATAL_ERROR "chunkmem: the tests need Catch2 (2.13 or 3) and it was not found. "
          "Install it (Debian: apt-get install catch2) or switch the tests off with -DCHUNKMEM_BUILD_TESTS=OFF")
endif()
chunkmem_summarize("tests: Catch2" "on " "${Catch2_VERSION}")

# Every header in one translation unit that is linked into every test: a function that is not inline is found at once.
file(GLOB_RECURSE chunkmem_headers RELATIVE "${PROJECT_SOURCE_DIR}/include" CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/include/chunkmem/*.hpp")
set(odr "// Written while configuring: every header in one translation unit.\n")
foreach(header IN LISTS chunkmem_headers)
  string(APPEND odr "#include <${header}>\n")
endforeach()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/odr.cpp" CONTENT "${odr}" @ONLY)

add_library(chunkmem_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/support/main.cpp"
            "${PROJECT_BINARY_DIR}/generated/odr.cpp")
chunkmem_flags(chunkmem_test_main)
target_include_directories(chunkmem_test_main PUBLIC "${PROJECT_SOURCE_DIR}/tests")
if(Catch2_VERSION VERSION_LESS 3)
  target_link_libraries(chunkmem_test_main PUBLIC Catch2::Catch2)
else()
  target_link_libraries(chunkmem_test_main PUBLIC Catch2::Catch2WithMain)
endif()

# chunkmem_test_program(<name> <folder> <sources...>): the program test_<name> and its ctest <name>. Cases with the tag
# [.slow] are hidden from it and get the ctest <name>.slow with the label slow.
function(chunkmem_test_program name folder)
  chunkmem_read_folder("${folder}")
  if("thread" IN_LIST CHUNKMEM_SANITIZE AND NOT "threads" IN_LIST chunkmem_labels)
    return()
  endif()
  chunkmem_program(test_${name} ${ARGN})
  target_compile_options(test_${name} PRIVATE ${chunkmem_compile_options})
  target_link_libraries(test_${name} PRIVATE chunkmem_test_main ${chunkmem_libraries})
  chunkmem_test(${name} LABELS ${chunkmem_labels} TIMEOUT ${chunkmem_timeout} COMMAND test_${name})
  if("figures" IN_LIST chunkmem_labels)
    chunkmem_makes_figures(test_${name})
  endif()

  set(has_slow_cases FALSE)
  foreach(source IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(STRINGS "${source}" slow_line REGEX "\\[\\.slow\\]" LIMIT_COUNT 1)
    if(slow_line)
      set(has_slow_cases TRUE)
    endif()
  endforeach()
  if(has_slow_cases)
    list(REMOVE_ITEM chunkmem_labels figures)
    chunkmem_test(${name}.slow LABELS slow ${chunkmem_labels} TIMEOUT 7200 COMMAND test_${name} "[.slow]")
  endif()
endfunction()
