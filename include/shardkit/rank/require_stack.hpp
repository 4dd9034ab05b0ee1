// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <cstddef>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::detail {

/// The stack that a rank's thread needs, most of it for a reduction's block and its callers. With less, the program
/// would end with SIGSEGV and no message.
inline constexpr std::size_t least_stack = std::size_t{96} << 10U;

/// Returns the size of the calling thread's stack, 0 if the system does not report it.
inline std::size_t stack_of_thread() noexcept {
    std::size_t bytes = 0;
#if defined(__GLIBC__)
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        void* begin = nullptr;
        if (pthread_attr_getstack(&attributes, &begin, &bytes) != 0) { bytes = 0; }
        pthread_attr_destroy(&attributes);
    }
#endif
    return bytes;
}

/// Checks that the calling thread has enough stack for a rank.
/// @throws UsageError that names its stack and the required one
inline void require_stack(SourceLocation where) {
    const std::size_t bytes = stack_of_thread();
    if (bytes == 0 || bytes >= least_stack) { return; }
    throw_usage_error(where, "a rank's thread has a stack of ", human_bytes(ByteCount(bytes)), ", expected at least ",
                      human_bytes(ByteCount(least_stack)), ": see ulimit -s, or the stack size of your own threads");
}

}  // namespace shardkit::detail
