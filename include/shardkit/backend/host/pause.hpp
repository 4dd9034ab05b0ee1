// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit::host::detail {

/// Tells the processor that this is a spinning wait, so that it yields resources to its sibling and leaves the
/// loop without a pipeline flush.
inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    asm volatile("yield");
#endif
}

}  // namespace shardkit::host::detail
