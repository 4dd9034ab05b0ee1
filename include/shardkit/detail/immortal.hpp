// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>

namespace shardkit::detail {

/// The process' one T of that tag, made at first use and never destroyed: what ends at exit may still use it, in
/// whatever order the static objects of a program end. Its memory is static, so that it is no leak.
template <class T, class Tag = T>
T& immortal() {
    alignas(T) static std::byte memory[sizeof(T)];
    static T* const made = ::new (static_cast<void*>(memory)) T();
    return *made;
}

}  // namespace shardkit::detail
