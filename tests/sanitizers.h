#pragma once
// Whether the tests are built with AddressSanitizer or ThreadSanitizer, for either compiler: GRISTMILL_SANITIZED.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GRISTMILL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GRISTMILL_SANITIZED 1
#endif
#endif
