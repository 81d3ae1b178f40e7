#pragma once
#include <cstddef>
#include <cstdint>

namespace gristmill::jinja::unicode {

/// Code points first, first + stride, ..., last.
struct Run {
  char32_t first, last;
  uint8_t stride;
};

/// Code points of a run that a case mapping moves by `delta`.
struct CaseRun {
  char32_t first, last;
  uint8_t stride;
  int32_t delta;
};

/// A code point that becomes up to three others (zeros at the end are no characters).
struct CaseException {
  char32_t from;
  char32_t to[3];
};

// All sorted by code point. `digit` leaves out what `decimal` has, `numeric` what either has; the exceptions of upper
// and lower add to their runs, those of title replace upper.
#define GRISTMILL_UNICODE_TABLE(type, name) \
  extern const type name[];                 \
  extern const size_t name##_count
GRISTMILL_UNICODE_TABLE(Run, unprintable);
GRISTMILL_UNICODE_TABLE(Run, alphabetic);
GRISTMILL_UNICODE_TABLE(Run, decimal);
GRISTMILL_UNICODE_TABLE(Run, digit);
GRISTMILL_UNICODE_TABLE(Run, numeric);
GRISTMILL_UNICODE_TABLE(Run, uppercase);
GRISTMILL_UNICODE_TABLE(Run, lowercase);
GRISTMILL_UNICODE_TABLE(CaseRun, to_upper);
GRISTMILL_UNICODE_TABLE(CaseRun, to_lower);
GRISTMILL_UNICODE_TABLE(CaseException, upper_exceptions);
GRISTMILL_UNICODE_TABLE(CaseException, lower_exceptions);
GRISTMILL_UNICODE_TABLE(CaseException, title_exceptions);
#undef GRISTMILL_UNICODE_TABLE

}  // namespace gristmill::jinja::unicode
