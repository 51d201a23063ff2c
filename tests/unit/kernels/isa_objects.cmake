# Fails if an object compiled for a wider instruction set defines a symbol that the linker may
# share with others (weak or unique): it could replace the same function of code that runs on
# every processor. Arguments: NM, OBJECTS (a list).
set(checked 0)
foreach(object ${OBJECTS})
  if(NOT object MATCHES "isa_avx")
    continue()
  endif()
  execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" shared "${symbols}")
  if(shared)
    message(FATAL_ERROR "${object} shares code with other instruction sets:\n${shared}")
  endif()
  math(EXPR checked "${checked} + 1")
endforeach()
if(checked LESS 2)
  message(FATAL_ERROR "found ${checked} objects to check, expected 2")
endif()
