// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <type_traits>

#include <shardkit/core/bf16.hpp>

#include "options.hpp"

namespace benchmarks::policies {

/// f(std::type_identity<T>{})
template <class F>
auto with_element(ElementKind kind, F f) {
    switch (kind) {
        case ElementKind::fp64:
            return f(std::type_identity<double>{});
        case ElementKind::fp32:
            return f(std::type_identity<float>{});
        case ElementKind::bf16:
            return f(std::type_identity<shardkit::bf16>{});
    }
    throw std::invalid_argument("with_element: no such type");
}

}  // namespace benchmarks::policies
