// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>

namespace shardkit::detail {

/// Returns the process's only T with that tag, made at first use and never destroyed: objects that end at exit may
/// still use it, in whatever order a program's static objects end. Its memory is static, so it is no leak.
template <class T, class Tag = T>
T& immortal() {
    alignas(T) static std::byte memory[sizeof(T)];
    static T* const made = ::new (static_cast<void*>(memory)) T();
    return *made;
}

}  // namespace shardkit::detail
