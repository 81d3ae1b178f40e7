#pragma once
// One binary holds code for several instruction sets: a file for one of them puts its functions between
// GRISTMILL_TARGET_BEGIN("...") and GRISTMILL_TARGET_END instead of being compiled with other flags. Ordinary headers
// come before the region, so that their inline functions stay free of instructions that another machine lacks; the
// kernel templates (row_kernels.h, float_linear.h, attention_kernels.h) come inside it.
#define GRISTMILL_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define GRISTMILL_TARGET_BEGIN(features) \
  GRISTMILL_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define GRISTMILL_TARGET_END _Pragma("clang attribute pop")
#else
#define GRISTMILL_TARGET_BEGIN(features) _Pragma("GCC push_options") GRISTMILL_PRAGMA(GCC target(features))
#define GRISTMILL_TARGET_END _Pragma("GCC pop_options")
#endif

// Before a loop of constant length over registers: it must be gone after compilation, or the registers become memory.
#if defined(__clang__)
#define GRISTMILL_UNROLL _Pragma("unroll")
#else
#define GRISTMILL_UNROLL _Pragma("GCC unroll 32")
#endif
