# Compiler settings shared by every target.

find_program(GRISTMILL_CCACHE ccache)
if(GRISTMILL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${GRISTMILL_CCACHE})
endif()

# Floating-point results are part of the product's promises (docs/architecture.md, "Numbers"):
# the compiler must not contract a*b+c on its own, so every FMA in the program is written as one.
add_compile_options(-ffp-contract=off -Wall -Wextra -Wshadow -Wnon-virtual-dtor -fno-plt)
if(GRISTMILL_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG -g1")
endif()
foreach(sanitizer IN LISTS GRISTMILL_SANITIZE)
  add_compile_options(-fsanitize=${sanitizer} -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # false alarms of g++ 12 in instrumented code
  add_link_options(-fsanitize=${sanitizer})
endforeach()
find_program(GRISTMILL_MOLD mold)
if(GRISTMILL_MOLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()

function(gristmill_target_options target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
endfunction()
