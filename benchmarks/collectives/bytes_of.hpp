// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "with_type.hpp"

namespace benchmarks {

/// Of one element.
inline std::size_t bytes_of(DataType type) {
    return with_type(type, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

}  // namespace benchmarks
