// Which sanitizers a test runs under.
#pragma once

namespace evalcar::test {

#if defined(__has_feature)  // clang's way to tell; g++ defines a macro for each
#define EVALCAR_HAS_FEATURE(name) __has_feature(name)
#else
#define EVALCAR_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || EVALCAR_HAS_FEATURE(address_sanitizer)
constexpr bool kUnderAddressSanitizer = true;
#else
constexpr bool kUnderAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || EVALCAR_HAS_FEATURE(thread_sanitizer)
constexpr bool kUnderThreadSanitizer = true;
#else
constexpr bool kUnderThreadSanitizer = false;
#endif

#undef EVALCAR_HAS_FEATURE

/// Why a test without descriptors is skipped then.
constexpr const char* kNeedsDescriptors =
    "UBSan's check of dynamic types opens a pipe of its own, and takes its failure for a fault";

}  // namespace evalcar::test
