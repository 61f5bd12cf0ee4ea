// Which sanitizers a test runs under.
#pragma once

namespace evalcar::test {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kUnderAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kUnderAddressSanitizer = true;
#else
constexpr bool kUnderAddressSanitizer = false;
#endif
#else
constexpr bool kUnderAddressSanitizer = false;
#endif

/// Why a test without descriptors is skipped then.
constexpr const char* kNeedsDescriptors =
    "UBSan's check of dynamic types opens a pipe of its own, and takes its failure for a fault";

}  // namespace evalcar::test
